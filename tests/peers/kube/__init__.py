"""A real control plane for tests: etcd, API server and controller manager in one binary, built from Go modules."""

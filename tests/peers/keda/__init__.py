"""The real KEDA operator and metrics adapter, built from their Go module, beside the real control plane."""

"""Who owns a partition: leases of workers, kept in one place under compare-and-set."""

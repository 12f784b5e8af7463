"""Where series are kept: the port and its adapters."""

"""How groups are seen: the port and its adapters."""

"""How plans become capacity: the port and its adapters."""

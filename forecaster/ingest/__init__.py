"""Where arrivals come from: the port, its adapters, and the recorder."""

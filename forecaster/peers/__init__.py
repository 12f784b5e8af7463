"""Well-known forecasting libraries behind the port of our own methods, for backtests beside them; extra ``peers``."""

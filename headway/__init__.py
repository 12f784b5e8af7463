"""The application: settings, wiring, HTTP, terminal, jobs, page."""

__version__ = "0.1.0"

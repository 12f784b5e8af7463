"""The application: settings, wiring, HTTP, terminal, jobs, page."""

"""Planned consumers: runs inside users' services, imports nothing heavy."""

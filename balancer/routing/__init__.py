"""Routed producers: runs inside users' services, imports nothing heavy."""

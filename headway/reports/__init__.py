"""Simulations, what-ifs and self-contained reports."""

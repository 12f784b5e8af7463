"""Timed against named peers, in one run; each leaves its figures in ``benchmarks/results``."""

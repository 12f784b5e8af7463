"""Simulated members, arrivals and time, under the real control tick and under rival policies."""

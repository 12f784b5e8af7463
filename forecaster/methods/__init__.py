"""Forecasting methods, one file each; none knows another."""

"""Planner side of hand-over and splitting."""

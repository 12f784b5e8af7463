"""Planned groups and routed topics wired: who leads, what moves, what is split."""

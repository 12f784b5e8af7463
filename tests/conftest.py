"""Settings of the test run that all suites share."""

from __future__ import annotations

from hypothesis import settings

# A property is about values, not about how busy the machine is.
settings.register_profile("headway", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True, database=None)
settings.load_profile("headway")

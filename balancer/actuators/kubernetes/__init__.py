"""Kubernetes' scale subresource, spoken directly over HTTP.

Six requests are all that is needed, and httpx is there anyway: the official client would add 27 packages (162 MiB), a
smaller one 15, for calls whose traps (409 without a rival, an absent zero, token rotation) must be handled by us either
way. ``docs/acting.md`` has the comparison.
"""

"""What the application itself refuses.

::

    HeadwayError
    ├── SettingsRefused    a settings file or environment variable that cannot be meant; names key and remedy
    ├── UnknownGroup       nobody configured that group; names the nearest ones
    ├── Forbidden          a token is missing or wrong
    └── NotReady           something that the request needs is not there yet; says when to come back
"""

from __future__ import annotations

from collections.abc import Sequence


class HeadwayError(Exception):
    """Root of the tree; the message is one line that says what happened and what to do."""


class SettingsRefused(HeadwayError):
    """Settings that cannot be meant. The message names file, key, value and the remedy."""


class UnknownGroup(HeadwayError):
    """A group that is not configured; ``nearest`` are names that look like it."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        self.name, self.nearest = name, tuple(nearest)
        hint = f"; did you mean {', '.join(self.nearest)}?" if self.nearest else "; GET /v1/groups lists the known ones"
        super().__init__(f"no group {name!r}{hint}")


class Forbidden(HeadwayError):
    """A token is missing or wrong."""


class NotReady(HeadwayError):
    """Something that the request needs is not there yet."""

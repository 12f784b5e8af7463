"""Names in addresses: a group may be called whatever Kafka takes, a slash (written ``%2F``) included."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

GROUP = "/groups/{group:name}"
"""The part of an address that every route of one group begins with."""
_KEPT = "\0"
"""Stands for a slash that belongs to a name, from the address as it was sent to the name as the handler gets it."""
_WRITTEN = re.compile("%2f", re.IGNORECASE)


class NameConvertor(Convertor[str]):
    """One part of a path that is a name: ``{group:name}``."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value.replace(_KEPT, "/")

    def to_string(self, value: str) -> str:
        """Return the name as a part of a path."""
        return value.replace("/", "%2F")


def keep_slashes(scope: Scope) -> None:
    """Let written slashes divide no path: servers decode them before anybody has looked for a route.

    Examples
    --------
    >>> scope = {"raw_path": b"/v1/groups/eu%2Forders/plan", "path": "/v1/groups/eu/orders/plan"}
    >>> keep_slashes(scope)
    >>> [NameConvertor().convert(part) for part in scope["path"].split("/")]
    ['', 'v1', 'groups', 'eu/orders', 'plan']
    """
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        scope["path"] = unquote(_WRITTEN.sub("%00", raw.decode("ascii", "replace")))


register_url_convertor("name", NameConvertor())

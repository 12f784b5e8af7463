"""Groups that a pattern of the settings fits, as they appear in the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from balancer.errors import BalancerError
from forecaster.errors import ForecasterError
from forecaster.topics import GroupId
from headway.configuration.settings import Settings
from headway.status.logs import logger

LOOK_EVERY_S = 60.0


class GroupSource(Protocol):
    """What the cluster says of its groups."""

    def kinds(self) -> Mapping[GroupId, str]:
        """Return the cluster's groups with their kind."""
        ...

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return the topics on which a group has committed."""
        ...


def fitting(settings: Settings, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return pattern → the groups that take its section, sorted; groups with a section of their own are left out.

    Examples
    --------
    >>> s = Settings(groups={"orders-*": {"topics": ["orders"]}, "orders-eu": {"topics": ["orders"]}})
    >>> fitting(s, ["orders-eu", "orders-us", "bills"])
    {'orders-*': ('orders-us',)}
    """
    found: dict[str, list[str]] = {pattern: [] for pattern in settings.patterns}
    for name in names:
        section = settings.section_of(name)
        if section in found:
            found[section].append(name)
    return {pattern: tuple(sorted(fits)) for pattern, fits in found.items()}


class Discovery:
    """Looks now and then for groups that a pattern fits, and has each new one watched.

    Parameters
    ----------
    settings
        With the patterns; a pattern without topics stands for those on which the group has committed.
    source
        Whose groups.
    watch
        Is called once a new group, with its topics.
    """

    def __init__(self, settings: Settings, source: GroupSource, watch: Callable[[str, tuple[str, ...]], None]) -> None:
        self._settings, self._source, self._watch = settings, source, watch
        self._known: set[str] = set()
        self._looked_at = float("-inf")

    def __call__(self) -> None:
        """Look, unless that was done within the last minute; a cluster that does not answer is asked again."""
        if not self._settings.patterns or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        try:
            for fits in fitting(self._settings, self._source.kinds()).values():
                for name in fits:
                    self._meet(name)
        except (ForecasterError, BalancerError):  # a cluster or store that is away; the record job says so
            return
        self._looked_at = time.monotonic()

    def _meet(self, name: str) -> None:
        own = self._settings.group(name)
        if name in self._known or own is None:
            return
        topics = own.topics or tuple(self._source.topics_of(GroupId(name)))
        if topics:
            self._watch(name, tuple(topics))
            self._known.add(name)
            logger("groups").info("found a group", group=name, topics=list(topics))

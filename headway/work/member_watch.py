"""What each member of a group did in each recorded step, from the snapshots of its ticks and the records."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from balancer.group import Assignment, GroupSnapshot
from balancer.member_capacity import MemberInterval, member_intervals
from forecaster.errors import StoreError
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.topics import GroupId, TopicPartition

LOOKS_KEPT = 500
STEPS_BACK = 3
"""A step that is not recorded by so many later is given up."""

_Counts = Mapping[TopicPartition, int]


class MemberWatch:
    """Remembers who owned what, and turns each step that is recorded meanwhile into intervals of the members.

    Parameters
    ----------
    store
        Where the records are.
    group, topics
        Whose.
    """

    def __init__(self, store: SeriesStore, group: GroupId, topics: Sequence[str]) -> None:
        self._store, self._group, self._topics = store, group, tuple(topics)
        self._looks: deque[tuple[datetime, Assignment]] = deque(maxlen=LOOKS_KEPT)
        self._done = -1

    def __call__(self, snapshot: GroupSnapshot) -> list[MemberInterval]:
        """Return the intervals that are new since the last call; none while the store does not answer."""
        owned = {m.id: m.partitions for m in snapshot.members if m.ready and not m.draining}
        self._looks.append((snapshot.at, owned))
        if not owned:
            return []
        try:
            return self._new(snapshot.at)
        except StoreError:  # the records stay; they are read at the next tick
            return []

    def _new(self, now: datetime) -> list[MemberInterval]:
        steps = {meta.step_s for topic in self._topics if (meta := self._store.meta(topic)) is not None}
        if len(steps) != 1:
            return []
        (step_s,) = steps
        end = int(now.timestamp()) // step_s
        first = max(self._done + 1, end - STEPS_BACK)
        if first >= end:
            return []
        lag, consumed = self._read("lag", step_s, first - 1, end), self._read("consumed", step_s, first, end)
        found: list[MemberInterval] = []
        for index in range(first, end):
            if index not in consumed or index not in lag:
                continue
            begin = datetime.fromtimestamp(index * step_s, UTC)
            until = begin + timedelta(seconds=step_s)
            found += member_intervals(
                tuple(self._looks), begin, until, consumed[index], lag.get(index - 1, {}), lag[index]
            )
            self._done = index
        return found

    def _read(self, name: str, step_s: int, first: int, end: int) -> Mapping[int, _Counts]:
        """Return step → what is known of it; a step of which nothing is known is left out."""
        found: dict[int, dict[TopicPartition, int]] = {}
        for topic in self._topics:
            cells: Cells = self._store.read(SeriesKey(topic, name, self._group, step_s), first, end)
            for partition, column in zip(*cells.known.nonzero(), strict=True):
                at = found.setdefault(first + int(column), {})
                at[TopicPartition(topic, int(partition))] = int(cells.values[partition, column])
        return found

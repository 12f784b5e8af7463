"""What a group protocol does for its members, done for planned groups: growth, deletion, foreigners."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from balancer.leases.base import GroupView, LeaderToken, LeaseStore, StartRule
from balancer.moves.founding import GroupSource
from balancer.moves.kafka import GroupMember
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What differs between the leases and the topics as they are."""

    grown: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    """New partitions, with their topic's id: they start at log start (K19)."""
    gone: tuple[TopicPartition, ...] = ()
    recreated: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """New topic id → partitions whose topic was deleted and created again (K15, K22)."""


def topic_changes(view: GroupView, topics: Mapping[str, tuple[str | None, int]]) -> TopicChanges:
    """Compare leases with topics (pure).

    Examples
    --------
    >>> empty = GroupView(0, 0, {}, {}, {})
    >>> list(topic_changes(empty, {"orders": ("id", 2)}).grown)
    [TopicPartition(topic='orders', partition=0), TopicPartition(topic='orders', partition=1)]
    """
    there = {TopicPartition(topic, i): topic_id for topic, (topic_id, n) in topics.items() for i in range(n)}
    recreated: dict[str, list[TopicPartition]] = {}
    for tp, lease in view.leases.items():
        now = there.get(tp)
        if now is not None and lease.topic_id is not None and now != lease.topic_id:
            recreated.setdefault(now, []).append(tp)
    return TopicChanges(
        {tp: topic_id for tp, topic_id in there.items() if tp not in view.leases},
        tuple(sorted(tp for tp in view.leases if tp not in there)),
        {topic_id: tuple(sorted(tps)) for topic_id, tps in recreated.items()},
    )


def foreign(members: tuple[GroupMember, ...], group: str) -> tuple[GroupMember, ...]:
    """Return members that are not our workers: somebody subscribes under this group's name (pure)."""
    return tuple(m for m in members if not m.client_id.startswith(f"headway.{group}."))


class Duties:
    """Looks at topics and members each tick, and puts leases right.

    ``alarm`` says what is wrong with the group's members; moving should stop while it is not None.
    """

    def __init__(self, source: GroupSource, store: LeaseStore) -> None:
        self._source = source
        self._store = store
        self.alarm: str | None = None

    def tick(self, token: LeaderToken, view: GroupView) -> TopicChanges:
        """Do what is due; return what has changed. Deleted topics are dropped when a second look agrees."""
        changes = topic_changes(view, self._source.partitions())
        for topic_id in set(changes.grown.values()):
            new = [tp for tp, t in changes.grown.items() if t == topic_id]
            log.info("%d new partitions, %s the first", len(new), min(new))
            self._store.add(token, new, StartRule.BEGINNING, topic_id)
        for topic_id, partitions in changes.recreated.items():
            log.warning("%s was created again: its partitions start anew", partitions[0].topic)
            self._store.void(token, partitions, topic_id)
        gone = set(changes.gone)
        certain = sorted(gone & self._suspected)
        self._suspected = gone
        if certain:
            log.warning("%d partitions are gone, %s the first", len(certain), certain[0])
            self._store.drop(token, certain)
        strangers = foreign(self._source.members(), self._source.group)
        self.alarm = (
            f"{len(strangers)} foreign members in group {self._source.group}, {strangers[0].client_id} at "
            f"{strangers[0].host} the first: stop them, or release the group; nothing moves meanwhile"
            if strangers
            else None
        )
        return changes

    _suspected: set[TopicPartition] = set()  # noqa: RUF012 - replaced, never changed

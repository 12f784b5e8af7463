"""Founds a group's books: for the first time, or again when the store may have lost its tail.

Nobody takes anything before the books are founded. Every life that might still commit is fenced first: each
transactional id of the group that any broker knows, and each worker named beside a committed offset. Then epochs go
on above everything that was ever seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Protocol

from balancer.leases.base import EPOCH_LEAP, LeaderToken, LeaseStore, StartRule, transactional_id
from balancer.moves.kafka import FenceFailed, GroupCommit, GroupMember
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")

LEAD_FOR = timedelta(seconds=10)
"""The lead is renewed for this long before the founding is written."""


class GroupSource(Protocol):
    """What founding needs of a group; :class:`balancer.moves.kafka.PlannedGroup` is one."""

    group: str

    def transactional_ids(self) -> dict[str, int]:
        """Return ids that any broker knows, with their instances."""
        ...

    def fence_id(self, transactional: str) -> None:
        """Fence one id."""
        ...

    def commits(self) -> dict[TopicPartition, GroupCommit]:
        """Return committed offsets."""
        ...

    def members(self) -> tuple[GroupMember, ...]:
        """Return members of the ordinary protocol."""
        ...

    def partitions(self) -> dict[str, tuple[str | None, int]]:
        """Return topic → (topic id, partitions)."""
        ...


def epoch_floor(
    commits: Mapping[TopicPartition, GroupCommit], sink_epochs: Mapping[TopicPartition, int], is_first: bool
) -> int:
    """Return what every later epoch must lie above.

    Examples
    --------
    >>> epoch_floor({}, {}, is_first=True)
    0
    >>> epoch_floor({}, {TopicPartition("orders", 0): 7}, is_first=False) == 7 + EPOCH_LEAP
    True
    """
    seen = [c.note.epoch for c in commits.values() if c.note is not None] + list(sink_epochs.values())
    return 0 if is_first and not seen else max(seen, default=0) + EPOCH_LEAP


class KafkaFounder:
    """Founds the books of one group from what Kafka knows.

    Parameters
    ----------
    source
        The group as Kafka shows it.
    sink_epochs
        Epochs that an external sink has seen, if there is one.
    """

    def __init__(self, source: GroupSource, sink_epochs: Callable[[], Mapping[TopicPartition, int]] = dict) -> None:
        self._source = source
        self._sink_epochs = sink_epochs

    def found(self, store: LeaseStore, token: LeaderToken) -> None:
        """Fence everybody, then found, then add a lease for each partition.

        Raises
        ------
        FenceFailed
            If a fence is not certain: nothing is founded, and it is tried again.
        """
        source = self._source
        ids = set(source.transactional_ids())
        named = {c.note.owner.instance for c in source.commits().values() if c.note is not None}
        ids |= {transactional_id(source.group, instance) for instance in named}
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(source.fence_id, sorted(ids)))
        ours = [m.client_id for m in source.members() if m.client_id.startswith(f"headway.{source.group}.")]
        if ours:
            raise FenceFailed(f"{len(ours)} members without transactions are still there; they stop by themselves")
        commits = source.commits()  # again: after the fences nothing more can come
        floor = epoch_floor(commits, self._sink_epochs(), is_first=not ids)
        renewed = store.lead(token.holder, LEAD_FOR)
        if renewed != token:
            raise FenceFailed("the lead was lost while fencing")
        store.found(token, epoch_floor=floor, plan_epoch=floor)
        for topic, (topic_id, count) in source.partitions().items():
            known = any(tp.topic == topic for tp in commits)
            # In a topic that the group has read before, a partition without a commit is younger than the group, or
            # has never been read: nothing of it may be skipped.
            rule = StartRule.BEGINNING if known else StartRule.POLICY
            store.add(token, (TopicPartition(topic, i) for i in range(count)), rule, topic_id)
        log.info("books of %s founded above epoch %d after %d fences", source.group, floor, len(ids))

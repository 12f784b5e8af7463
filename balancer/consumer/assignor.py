"""A classic assignor for kafka-python groups that must keep ``subscribe``: weighted, and sticky.

Use::

    weights = weights_of("http://headway:8765", "orders")
    KafkaConsumer("orders", group_id="orders", partition_assignment_strategy=[PlannedAssignor(weights, "orders-1")])

Each member sends what it owns; the leader shares partitions out by weight and leaves them where they are as far as
that allows. kafka-python stalls the whole member in each round: this shares out well, it does not move without a pause.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from forecaster.topics import TopicPartition


def share_out(
    weights: Mapping[TopicPartition, float],
    owned: Mapping[str, Iterable[TopicPartition]],
    slack: float = 0.1,
) -> dict[str, list[TopicPartition]]:
    """Share partitions out by weight, leaving them where they are while nobody exceeds its share (pure).

    Parameters
    ----------
    weights
        Records/s of each partition (or any other weight, 0 or more).
    owned
        Member → what it owns now; members that own nothing are in it too.
    slack
        By what part of the mean a member may exceed it before anything leaves it.

    Examples
    --------
    >>> tps = [TopicPartition("t", i) for i in range(4)]
    >>> found = share_out(dict.fromkeys(tps, 1.0), {"a": tps, "b": []})
    >>> {member: [tp.partition for tp in mine] for member, mine in found.items()}
    {'a': [0, 1], 'b': [2, 3]}
    """
    members = sorted(owned)
    if not members:
        return {}
    limit = (1 + slack) * sum(weights.values()) / len(members)
    load = dict.fromkeys(members, 0.0)
    count = dict.fromkeys(members, 0)
    found: dict[str, list[TopicPartition]] = {m: [] for m in members}
    homeless = set(weights)

    def give(tp: TopicPartition, member: str) -> None:
        homeless.discard(tp)
        found[member].append(tp)
        load[member] += weights[tp]
        count[member] += 1

    for member in members:
        for tp in sorted(owned[member]):
            if tp in homeless and (load[member] + weights[tp] <= limit or not found[member]):
                give(tp, member)
    for tp in sorted(homeless, key=lambda tp: (-weights[tp], tp)):
        give(tp, min(members, key=lambda m: (load[m], count[m], m)))
    return {member: sorted(mine) for member, mine in found.items()}


def weights_of(
    url: str, group: str, token: str | None = None, timeout_s: float = 5.0
) -> Callable[[], Mapping[TopicPartition, float]]:
    """Return a function that asks Headway for the median rate of each partition over the next hour, records/s.

    While Headway does not answer, it returns what it said last; before it ever did, nothing: then partitions count
    alike. A topic without a forecast is left out, so that its partitions count as the mean of the others.

    Parameters
    ----------
    url
        Where ``headway serve`` answers.
    group
        The group's name there.
    token
        Its read token, if it has one.
    timeout_s
        How long one of 1 + topics answers may be silent; the whole group waits for them all.
    """
    last: dict[TopicPartition, float] = {}

    def ask(path: str) -> Any:
        request = Request(f"{url.rstrip('/')}/v1/groups/{quote(group, safe='')}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        with urlopen(request, timeout=timeout_s) as answer:
            return json.load(answer)

    def weights() -> Mapping[TopicPartition, float]:
        try:
            found: dict[TopicPartition, float] = {}
            for topic in ask("")["topics"]:
                said = ask(f"/forecast?by=partition&levels=0.5&horizon=1h&topic={quote(topic, safe='')}")
                for row in said["partitions"] or ():
                    rates = row["values"]["0.5"]
                    found[TopicPartition(topic, row["partition"])] = sum(rates) / max(len(rates), 1)
        except (OSError, HTTPException, ValueError, KeyError, TypeError):  # a rebalance must end, whatever is away
            return dict(last)
        last.clear()
        last.update(found)
        return found

    return weights


class PlannedAssignor(AbstractPartitionAssignor):
    """Shares partitions out by the plan's weights.

    Parameters
    ----------
    weights
        Returns records/s by partition, as far as they are known (:func:`weights_of`); the rest counts as the mean of
        those.
    worker
        Name of this member, shown in its metadata.
    """

    name = "headway"

    def __init__(self, weights: Callable[[], Mapping[TopicPartition, float]], worker: str = "") -> None:
        self._weights = weights
        self._worker = worker
        self._owned: list[TopicPartition] = []

    def metadata(self, topics: Iterable[str]) -> Any:
        """Say what this member subscribes to and owns."""
        data = {"worker": self._worker, "owned": [str(tp) for tp in self._owned]}
        return ConsumerProtocolSubscription(0, sorted(topics), json.dumps(data).encode())

    def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
        """Share out, as the group's leader."""
        owned: dict[str, list[TopicPartition]] = {}
        topics: set[str] = set()
        for member in members:
            topics |= set(member.metadata.topics)
            try:
                said = json.loads(member.metadata.user_data or b"{}")
                owned[member.member_id] = [TopicPartition.parse(text) for text in said.get("owned", [])]
            except (ValueError, AttributeError):
                owned[member.member_id] = []
        known = self._weights()
        mean = sum(known.values()) / len(known) if known else 1.0
        everything = [
            TopicPartition(topic, p) for topic in topics for p in sorted(cluster.partitions_for_topic(topic) or ())
        ]
        shares = share_out({tp: known.get(tp, mean) for tp in everything}, owned)
        return {member: self._assignment(mine) for member, mine in shares.items()}

    def _assignment(self, mine: list[TopicPartition]) -> Any:
        by_topic: dict[str, list[int]] = {}
        for tp in mine:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        return ConsumerProtocolAssignment(0, sorted(by_topic.items()), b"")

    def on_assignment(self, assignment: Any, generation: int | None = None) -> None:
        """Remember what was assigned, for the next round."""
        listed = assignment.assigned_partitions
        self._owned = [TopicPartition(topic, p) for topic, partitions in listed for p in partitions]

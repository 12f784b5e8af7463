"""What changed of each group, as it happens: decisions that differ from the one before, and owners of partitions.

Fed by the board; a decision in full, with its inputs, is read from the plan store when somebody opens it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from balancer.group import Assignment, GroupSnapshot
from balancer.plan import ScalingPlan
from forecaster.topics import TopicPartition
from headway.status.board import Board, Event
from headway.status.wire import Document, bound_document, instant

KEPT = 2000


class Timeline:
    """Listens to a board and remembers the latest changes of every group."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._decisions: dict[str, deque[Document]] = {}
        self._moves: dict[str, deque[Document]] = {}
        self._owners: dict[str, tuple[object, Mapping[TopicPartition, str]]] = {}
        board.listen(self._hear)

    def decisions(self, group: str, since: datetime) -> list[Document]:
        """Return the decisions that differed from the one before, oldest first."""
        start = instant(since)
        return [d for d in list(self._decisions.get(group, ())) if d["at"] >= start]

    def moves(self, group: str, since: datetime) -> list[Document]:
        """Return the changes of owners that were seen, oldest first."""
        start = instant(since)
        return [m for m in list(self._moves.get(group, ())) if m["at"] >= start]

    def recall(self, group: str, found: list[Document]) -> None:
        """Put earlier decisions, oldest first, before those that were heard since the start."""
        heard = self._decisions.setdefault(group, deque(maxlen=KEPT))
        first = heard[0]["at"] if heard else None
        changed: list[Document] = []
        for document in found:
            if (first is None or document["at"] < first) and (not changed or differs(changed[-1], document)):
                changed.append(document)
        self._decisions[group] = deque([*changed, *heard], maxlen=KEPT)

    def _hear(self, event: Event) -> None:
        kind, document = event
        name = document.get("group")
        if kind not in ("plan", "snapshot") or not isinstance(name, str):
            return
        view = self._board.get(name)
        if view is None:
            return
        if view.plan is not None and kind == "plan":
            self._decided(name, view.plan, view.mode)
        if view.snapshot is not None:
            self._owned(name, view.snapshot)

    def _decided(self, name: str, plan: ScalingPlan, mode: str) -> None:
        kept = self._decisions.setdefault(name, deque(maxlen=KEPT))
        summary = summarised(plan, mode)
        if not kept or differs(kept[-1], summary):
            kept.append(summary)

    def _owned(self, name: str, snapshot: GroupSnapshot) -> None:
        members, before = self._owners.get(name, (None, {}))
        if members is snapshot.members:
            return
        owners = {tp: member for member, owned in snapshot.assignment.items() for tp in owned}
        kept = self._moves.setdefault(name, deque(maxlen=KEPT))
        if members is not None:
            kept.extend(
                {"at": instant(snapshot.at), "partition": str(tp), "source": before.get(tp), "target": target}
                for tp, target in sorted(owners.items())
                if before.get(tp) != target
            )
        self._owners[name] = (snapshot.members, owners)


def summarised(plan: ScalingPlan, mode: str) -> Document:
    """Return a decision in a line of the timeline."""
    return {
        "at": instant(plan.made_at),
        "mode": mode,
        "replicas": plan.replicas,
        "hold": plan.hold,
        "bound_by": bound_document(plan.bound_by),
        "reason": plan.reasons[0] if plan.reasons else None,
    }


def differs(before: Document, after: Document) -> bool:
    """Tell whether two decisions differ in what they do."""
    keys = ("replicas", "hold", "mode")
    return any(before[k] != after[k] for k in keys) or before["bound_by"]["kind"] != after["bound_by"]["kind"]


def assignment_document(snapshot: GroupSnapshot) -> dict[str, Any]:
    """Return who owns what, with loads in records/s; ``skew`` is the busiest member's load over the mean.

    Examples
    --------
    >>> from datetime import UTC
    >>> from balancer.group import Member, PartitionState
    >>> tp = TopicPartition("orders", 0)
    >>> at, partitions = datetime(2026, 1, 5, tzinfo=UTC), {tp: PartitionState(0, 5.0)}
    >>> seen = GroupSnapshot("g", at, 1, (Member("a", (tp,)),), partitions)
    >>> assignment_document(seen)["members"][0]["load"]
    5.0
    """
    owned: Assignment = snapshot.assignment
    members: list[Document] = []
    for member in snapshot.members:
        rows: list[Document] = []
        for tp in owned[member.id]:
            state = snapshot.partitions.get(tp)
            rows.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "rate": None if state is None else state.arrival_rate,
                    "lag": None if state is None else state.lag,
                    "why": None if state is None else state.why,
                }
            )
        known = [r["rate"] for r in rows if r["rate"] is not None]
        members.append(
            {
                "id": member.id,
                "ready": member.ready,
                "draining": member.draining,
                "capacity": member.capacity,
                "load": round(sum(known), 4) if known or not rows else None,
                "partitions": rows,
            }
        )
    loads = [m["load"] for m in members if m["ready"] and m["load"] is not None]
    mean = sum(loads) / len(loads) if loads else 0.0
    held = {tp for partitions in owned.values() for tp in partitions}
    return {
        "at": instant(snapshot.at),
        "protocol": str(snapshot.protocol),
        "generation": snapshot.generation,
        "members": members,
        "unowned": [str(tp) for tp in snapshot.partitions if tp not in held],
        "skew": round(max(loads) / mean, 4) if mean > 0 else None,
    }

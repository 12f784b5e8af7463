"""The slot table: which partition each virtual slot goes to, and what is under way. A value; nothing here does I/O.

Every change is a new table with the next epoch (`balancer.routing.protocol`). The record in the topic's compacted table
topic is the truth; a copy in the store is a cache.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from balancer.errors import BalancerError
from balancer.routing.hashing import HASHES, slot_count

VERSION = 1


class TableRefused(BalancerError):
    """A slot table that must not be used: wrong topic, older epoch, damaged, or from a newer version."""


class Kind(StrEnum):
    """Which way slots move."""

    SPLIT = "split"
    """To a fresh lane: the lane is gated in each group until the source is drained there."""
    MERGE = "merge"
    """Back to a partition that serves other slots: the slots are held until the lane is drained everywhere."""


class Phase(StrEnum):
    """How far a transition is. Forward only from START on."""

    PREPARED = "prepared"
    STOPPING = "stopping"
    FENCED = "fenced"
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Fence:
    """Ends of both logs after every producer acknowledged or was fenced; fixed once, never computed again.

    ``source_end`` (F): below it lies all that the slots ever wrote to the source. ``target_end`` (G): none of them lies
    below it in the target.
    """

    source_end: int
    source_leader_epoch: int
    target_end: int
    target_leader_epoch: int


@dataclass(frozen=True, slots=True)
class Transition:
    """Some slots on their way from one partition to another.

    ``number`` is the epoch of its PREPARE: unique within the topic's life.
    """

    number: int
    kind: Kind
    slots: tuple[int, ...]
    source: int
    target: int
    phase: Phase = Phase.PREPARED
    fence: Fence | None = None
    drained: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()

    def holds(self) -> bool:
        """Whether producers hold the slots: from STOP to START."""
        return self.phase in (Phase.STOPPING, Phase.FENCED)

    def gates(self, group: str) -> bool:
        """Whether the target must not be read by a group yet (splits only: a merge's target serves others)."""
        return self.kind is Kind.SPLIT and group not in self.opened


@dataclass(frozen=True, slots=True)
class Kept:
    """A transition that is done, remembered until retention has passed its F: who starts lower is warned."""

    slots: tuple[int, ...]
    source: int
    source_end: int
    target: int
    target_end: int


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The routing of one topic at one epoch.

    Parameters
    ----------
    topic, topic_id
        Which topic; the id changes when it is deleted and made anew, and then the table is void.
    epoch
        Grows by one with every change, an abort too.
    hash
        ``murmur2`` or ``crc32``.
    partitions
        N at adoption; with it the number of slots is fixed for the topic's life.
    moved
        Slot → partition, only for slots that are not where they started (``slot mod N``).
    groups
        Registered groups: each drains and gates.
    transitions
        What is under way.
    kept
        What is done but not forgotten.

    Examples
    --------
    >>> table = SlotTable("orders", "id-1", 1, "murmur2", 12, groups=("billing",))
    >>> table.slots, table.partition_of_slot(13)
    (4104, 1)
    >>> table.partition_of_key(b"21") == murmur2_partition(b"21", 12)
    True
    """

    topic: str
    topic_id: str
    epoch: int
    hash: str
    partitions: int
    moved: Mapping[int, int] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    transitions: tuple[Transition, ...] = ()
    kept: tuple[Kept, ...] = ()

    def __post_init__(self) -> None:
        if self.hash not in HASHES:
            raise TableRefused(f"hash {self.hash!r} is not one of {', '.join(HASHES)}")
        if self.epoch < 1 or self.partitions < 1:
            raise TableRefused(f"epoch {self.epoch} and partitions {self.partitions} must be 1 or more")
        slots = self.slots
        if any(not 0 <= s < slots or p < 0 for s, p in self.moved.items()):
            raise TableRefused(f"a slot is outside 0 … {slots - 1}, or a partition is negative")

    @property
    def slots(self) -> int:
        """Number of virtual slots."""
        return slot_count(self.partitions)

    def slot_of_key(self, key: bytes) -> int:
        """Return the slot of a key (not null; null keys are not routed)."""
        return HASHES[self.hash](key) % self.slots

    def partition_of_slot(self, slot: int) -> int:
        """Return where a slot's records go at this epoch."""
        return self.moved.get(slot, slot % self.partitions)

    def partition_of_key(self, key: bytes) -> int:
        """Return where a key's records go at this epoch."""
        return self.partition_of_slot(self.slot_of_key(key))

    def held_slots(self) -> frozenset[int]:
        """Return the slots that producers hold at this epoch."""
        return frozenset(s for t in self.transitions if t.holds() for s in t.slots)

    def gated(self, group: str) -> frozenset[int]:
        """Return the partitions that a group must not read yet."""
        return frozenset(t.target for t in self.transitions if t.gates(group))

    def slots_of(self, partition: int) -> tuple[int, ...]:
        """Return the slots that go to a partition, rising."""
        here = {s for s, p in self.moved.items() if p == partition}
        if partition < self.partitions:
            here |= {s for s in range(partition, self.slots, self.partitions) if s not in self.moved}
        return tuple(sorted(here))

    def lanes_of(self, parent: int) -> tuple[int, ...]:
        """Return the partitions that hold slots whose first place was ``parent``."""
        return tuple(sorted({p for s, p in self.moved.items() if s % self.partitions == parent and p != parent}))

    def transition(self, number: int) -> Transition | None:
        """Return the open transition of that number."""
        return next((t for t in self.transitions if t.number == number), None)


def encode(table: SlotTable) -> bytes:
    """Return the table as JSON with a checksum over everything else."""
    document = _document(table)
    return json.dumps(document | {"checksum": _checksum(document)}, separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes) -> SlotTable:
    """Read what :func:`encode` wrote.

    Raises
    ------
    TableRefused
        If it is damaged, or written by a newer version.
    """
    try:
        document = json.loads(data)
        claimed = document.pop("checksum")
        version = document["version"]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise TableRefused(f"the slot table is not readable ({exc}); rebuild it from the table topic") from exc
    if version != VERSION:
        raise TableRefused(f"the slot table has version {version}, this library reads {VERSION}; upgrade it")
    if claimed != _checksum(document):
        raise TableRefused("the slot table's checksum does not match; rebuild it from the table topic")
    transitions = tuple(
        Transition(
            number=t["number"], kind=Kind(t["kind"]), slots=_spread(t["slots"]), source=t["source"], target=t["target"],
            phase=Phase(t["phase"]), fence=None if t["fence"] is None else Fence(*t["fence"]),
            drained=tuple(t["drained"]), opened=tuple(t["opened"]),
        )
        for t in document["transitions"]
    )  # fmt: skip
    return SlotTable(
        topic=document["topic"], topic_id=document["topic_id"], epoch=document["epoch"], hash=document["hash"],
        partitions=document["partitions"],
        moved={slot: int(p) for p, runs in document["moved"].items() for slot in _spread(runs)},
        groups=tuple(document["groups"]), transitions=transitions,
        kept=tuple(Kept(_spread(k[0]), *k[1:]) for k in document["kept"]),
    )  # fmt: skip


def newer(have: SlotTable | None, seen: SlotTable, topic_id: str) -> SlotTable:
    """Return the table to use when another one is seen.

    Raises
    ------
    TableRefused
        If the seen one is for another incarnation of the topic, or goes back: flow continues on the old table.
    """
    if seen.topic_id != topic_id:
        raise TableRefused(f"the table is for topic id {seen.topic_id}, the topic {seen.topic} now has {topic_id}")
    if have is not None and seen.epoch < have.epoch:
        raise TableRefused(f"the table's epoch went back from {have.epoch} to {seen.epoch}; kept the newer one")
    return seen


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return where Java's default partitioner puts a key."""
    return HASHES["murmur2"](key) % partitions


@lru_cache(maxsize=512)
def _runs(slots: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return rising slots as (first, how many, distance): a lane's slots lie evenly, so that a table stays small.

    Examples
    --------
    >>> _runs((0, 12, 24, 36, 50)), _runs((3,)), _runs(())
    (((0, 4, 12), (50, 1, 1)), ((3, 1, 1),), ())
    """
    runs: list[tuple[int, int, int]] = []
    for slot in slots:
        if runs:
            first, count, distance = runs[-1]
            if count == 1 or slot == first + count * distance:
                runs[-1] = (first, count + 1, slot - first if count == 1 else distance)
                continue
        runs.append((slot, 1, 1))
    return tuple(runs)


def _spread(runs: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(slot for first, count, distance in runs for slot in range(first, first + count * distance, distance))


def _document(table: SlotTable) -> dict[str, Any]:
    moved: dict[int, list[int]] = {}
    for slot in sorted(table.moved):
        moved.setdefault(table.moved[slot], []).append(slot)
    return {
        "version": VERSION,
        "topic": table.topic,
        "topic_id": table.topic_id,
        "epoch": table.epoch,
        "hash": table.hash,
        "partitions": table.partitions,
        "moved": {str(p): _runs(tuple(slots)) for p, slots in sorted(moved.items())},
        "groups": list(table.groups),
        "transitions": [
            {
                "number": t.number, "kind": t.kind, "slots": _runs(t.slots), "source": t.source, "target": t.target,
                "phase": t.phase, "drained": list(t.drained), "opened": list(t.opened),
                "fence": None if t.fence is None else [
                    t.fence.source_end, t.fence.source_leader_epoch, t.fence.target_end, t.fence.target_leader_epoch,
                ],
            }
            for t in table.transitions
        ],
        "kept": [[_runs(k.slots), k.source, k.source_end, k.target, k.target_end] for k in table.kept],
    }  # fmt: skip


def _checksum(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, separators=(",", ":"), sort_keys=True).encode())

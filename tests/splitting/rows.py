"""What goes through the pipe of the splitting tests, and how it is judged."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

IN = struct.Struct(">HHId")
"""Producer, key, sequence number of that producer's records of that key, wall clock when it was sent."""
OUT = struct.Struct(">HHIdHQd")
"""The same, then partition and offset that it was read from, and wall clock when it was handled."""


class Row(NamedTuple):
    """One record as a worker has handled it."""

    producer: int
    key: int
    seq: int
    sent: float
    partition: int
    offset: int
    handled: float


@dataclass(slots=True)
class Verdict:
    """What went wrong, over all groups; ``made`` is what the input's log holds, committed."""

    made: int = 0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.repeated or self.reordered)


def judge(made: Iterable[tuple[int, int, int]], outputs: dict[str, list[Row]]) -> Verdict:
    """Compare what was committed to the input with what each group made of it, key by key in the output's order.

    Repeated counts a sequence number seen twice; reordered one that comes behind a later one of its producer, or a
    record that comes behind a later one of the same partition (the log's order, over all producers).
    """
    truth = set(made)
    verdict = Verdict(made=len(truth))
    # what the input holds must itself be whole: sequence numbers without a gap
    ends: dict[tuple[int, int], int] = defaultdict(int)
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for producer, key, seq in truth:
        ends[producer, key] = max(ends[producer, key], seq + 1)
        counts[producer, key] += 1
    for who, end in ends.items():
        if counts[who] != end:
            verdict.lost += end - counts[who]
            verdict.examples.append(f"input: producer {who[0]} key {who[1]} holds {counts[who]} of {end}")
    for group, rows in outputs.items():
        seen: set[tuple[int, int, int]] = set()
        last: dict[tuple[int, int], int] = {}
        place: dict[tuple[int, int], int] = {}
        for row in rows:
            id = (row.producer, row.key, row.seq)
            if id in seen:
                verdict.repeated += 1
                verdict.examples.append(f"{group}: {id} again, from {row.partition}@{row.offset}")
                continue
            seen.add(id)
            before = last.get((row.producer, row.key), -1)
            where = place.get((row.key, row.partition), -1)
            if row.seq < before or row.offset < where:
                verdict.reordered += 1
                verdict.examples.append(f"{group}: {id} behind {before}, {row.partition}@{row.offset} after {where}")
            last[row.producer, row.key] = max(before, row.seq)
            place[row.key, row.partition] = max(where, row.offset)
        missing = truth - seen
        verdict.lost += len(missing)
        verdict.examples += [f"{group}: {id} is lost" for id in sorted(missing)[:3]]
    verdict.examples = verdict.examples[:20]
    return verdict

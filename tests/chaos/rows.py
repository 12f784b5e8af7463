"""What goes through the pipe of a test: input and output records, and the count of what went wrong with them."""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

IN = struct.Struct(">qd")
"""Sequence number within the key, instant written (monotonic)."""
OUT = struct.Struct(">hqqddhq")
"""Partition, offset, sequence, instant written, instant handled, instance, lease epoch."""


@dataclass(frozen=True, slots=True)
class Row:
    """One output record, as a ``read_committed`` reader saw it."""

    partition: int
    offset: int
    seq: int
    written: float
    handled: float
    instance: int
    epoch: int
    seen: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What went wrong: nothing, if all but ``produced`` are zero."""

    produced: int
    lost: int
    repeated: int
    reordered: int

    @property
    def is_clean(self) -> bool:
        """Whether every record came exactly once and in order."""
        return self.lost == self.repeated == self.reordered == 0


def judge(rows: Iterable[Row], ends: Mapping[int, int]) -> Verdict:
    """Count lost, repeated and reordered records of each partition of the input, whose offsets run from 0 to its end.

    Records are told apart by their input offsets: after a broker was killed, a producer may write one twice, and then
    both must come through.
    """
    offsets: dict[int, list[int]] = {p: [] for p in ends}
    for row in rows:
        offsets[row.partition].append(row.offset)
    lost = repeated = reordered = 0
    for p, end in ends.items():
        seen = offsets[p]
        lost += end - len(set(seen))
        repeated += len(seen) - len(set(seen))
        reordered += sum(b < a for a, b in itertools.pairwise(seen))
    return Verdict(sum(ends.values()), lost, repeated, reordered)


A_BATCH = 500
"""Records that an at-least-once worker may repeat of a partition after a crash: what one poll brings at most."""


def judge_repeats(rows: Iterable[Row], ends: Mapping[int, int]) -> Verdict:
    """Count lost records, and those that come again from further back than a batch."""
    furthest: dict[int, int] = dict.fromkeys(ends, -1)
    seen: dict[int, set[int]] = {p: set() for p in ends}
    too_far = 0
    for row in rows:
        too_far += row.offset <= furthest[row.partition] - A_BATCH
        furthest[row.partition] = max(furthest[row.partition], row.offset)
        seen[row.partition].add(row.offset)
    lost = sum(end - len(seen[p]) for p, end in ends.items())
    return Verdict(sum(ends.values()), lost, too_far, 0)


@dataclass(frozen=True, slots=True)
class Gap:
    """A partition changed its owner: seconds between the last record of the old and the first of the new."""

    at: float
    partition: int
    source: int
    target: int
    handled: float
    seen: float


def owner_changes(rows: Iterable[Row]) -> list[Gap]:
    """Return every change of owner, by output order within each partition."""
    last: dict[int, Row] = {}
    gaps = []
    for row in rows:
        before = last.get(row.partition)
        if before is not None and (before.instance, before.epoch) != (row.instance, row.epoch):
            gaps.append(
                Gap(row.handled, row.partition, before.instance, row.instance, row.handled - before.handled,
                    row.seen - before.seen)
            )  # fmt: skip
        last[row.partition] = row
    return gaps


class Timeline:
    """Rows by partition, for questions about spans of time."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[int, list[Row]] = {}
        for row in rows:
            self._rows.setdefault(row.partition, []).append(row)
        self._at = {p: [row.handled for row in own] for p, own in self._rows.items()}

    def longest_gaps(self, start: float, end: float) -> dict[int, tuple[float, bool]]:
        """Return per partition the longest pause (s) that overlaps a span, and whether its owner changed in it."""
        found: dict[int, tuple[float, bool]] = {}
        for p, own in self._rows.items():
            first = max(bisect_right(self._at[p], start) - 1, 0)
            part = own[first : bisect_left(self._at[p], end) + 1]
            pairs = list(itertools.pairwise(part))
            if pairs:
                moved = any(a.instance != b.instance for a, b in pairs)
                found[p] = (max(b.handled - a.handled for a, b in pairs), moved)
        return found


def quantile(values: Iterable[float], q: float) -> float:
    """Return the empirical quantile (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")

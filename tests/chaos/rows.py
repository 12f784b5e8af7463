"""What goes through the pipe of a test: input and output records, and the count of what went wrong with them."""

from __future__ import annotations

import itertools
import struct
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


def judge(rows: Iterable[Row], produced: Mapping[int, int]) -> Verdict:
    """Count lost, repeated and reordered records, key by key (a key is an input partition)."""
    seqs: dict[int, list[int]] = {p: [] for p in produced}
    for row in rows:
        seqs[row.partition].append(row.seq)
    lost = repeated = reordered = 0
    for p, count in produced.items():
        seen = seqs[p]
        lost += count - len(set(seen))
        repeated += len(seen) - len(set(seen))
        reordered += sum(b < a for a, b in itertools.pairwise(seen))
    return Verdict(sum(produced.values()), lost, repeated, reordered)


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


def longest_gaps(rows: Iterable[Row], start: float, end: float) -> dict[int, tuple[float, bool]]:
    """Return per partition the longest pause (s) that overlaps [start, end], and whether its owner changed in it."""
    out: dict[int, tuple[float, bool]] = {}
    last: dict[int, Row] = {}
    for row in rows:
        before = last.get(row.partition)
        if before is not None and row.handled > start and before.handled < end:
            longest, changed = out.get(row.partition, (0.0, False))
            moved = changed or before.instance != row.instance
            out[row.partition] = (max(longest, row.handled - before.handled), moved)
        last[row.partition] = row
    return out


def quantile(values: Iterable[float], q: float) -> float:
    """Return the empirical quantile (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")

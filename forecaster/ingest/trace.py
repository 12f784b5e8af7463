"""Trace files: CSV ``timestamp,series,value`` → arrivals on one grid, read strictly.

A file that could be meant in two ways is refused with its line number, since a silently repaired history turns into a
wrong plan later. What is not there is a gap, never zero.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import InputRefused
from forecaster.ingest.trace_rows import read_rows
from forecaster.series import ArrivalSeries

MAX_CELLS = 400_000_000
"""Partitions x steps that a file may span; beyond it a timestamp is mistyped rather than the trace that long."""


def read_trace(
    path: str | Path,
    series: str | None = None,
    integers: bool = False,
    round_: bool = False,
    timezone: str = "UTC",
    missing: float | None = None,
) -> ArrivalSeries:
    """Read a trace file, plain or gzip.

    Parameters
    ----------
    path
        CSV with the header ``timestamp,series,value``: ISO 8601 with zone, start of the interval; a series id; records
        in that interval. Rows may be ordered by time or by series, but each series must go forwards.
    series
        Take this series only. Without it, several series are the partitions of one topic: series called ``0`` to
        ``n - 1`` keep their number, others are numbered in the order in which they appear.
    integers
        Refuse values that are not whole records.
    round_
        Round values to whole records (half up) instead.
    timezone
        Zone whose wall clock the seasons of the series follow.
    missing
        What the file writes where nothing is known, such as -1: a row with exactly this value is a gap. Without it,
        a negative value is refused.

    Returns
    -------
    ArrivalSeries
        Named after the file, in records per step; the step is inferred. A step without a row is not known.

    Raises
    ------
    InputRefused
        If the file cannot be opened or read, or is not unambiguous; names file, line, value and remedy.
    """
    rows = read_rows(Path(path), series, integers and not round_, round_, timezone, missing)
    first, steps = rows.span()
    shape = (len(rows.names), steps)
    if steps * len(rows.names) > MAX_CELLS:
        raise InputRefused(
            f"{path}: {rows.extent()} are {steps} steps of {rows.grid.step_s} s in {len(rows.names)} series; check "
            f"these timestamps, or read the series one by one"
        )
    order = _partition_order(rows.names)
    counts, known = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    there = np.isfinite(rows.values)
    counts[order[rows.owners], rows.index - first] = np.where(there, rows.values, 0.0)
    known[order[rows.owners], rows.index - first] = there
    names = tuple(name for _, name in sorted(zip(order.tolist(), rows.names, strict=True)))
    return ArrivalSeries(topic_of(path), rows.grid, first, tuple(range(len(names))), counts, known, names)


def read_each(
    path: str | Path,
    integers: bool = False,
    round_: bool = False,
    timezone: str = "UTC",
    missing: float | None = None,
) -> list[ArrivalSeries]:
    """Read every series of a trace file by itself, each from its own first to its own last row.

    For sets of unrelated series (competitions, metrics of many services), which need not overlap in time. Parameters
    and refusals are those of :func:`read_trace`; all series share one step.
    """
    rows = read_rows(Path(path), None, integers and not round_, round_, timezone, missing)
    out = []
    for who in np.argsort(_partition_order(rows.names)):
        mine = np.flatnonzero(rows.owners == who)
        index = rows.index[mine]
        first, steps = int(index[0]), int(index[-1] - index[0]) + 1
        if steps > MAX_CELLS:
            raise InputRefused(f"{path}: series {rows.names[who]} spans {steps} steps; check its timestamps")
        counts, known = np.zeros((1, steps)), np.zeros((1, steps), dtype=np.bool_)
        there = np.isfinite(rows.values[mine])
        counts[0, index - first] = np.where(there, rows.values[mine], 0.0)
        known[0, index - first] = there
        name = rows.names[who]
        out.append(ArrivalSeries(topic_of(path), rows.grid, first, (0,), counts, known, (name,)))
    return out


def topic_of(path: str | Path) -> str:
    """Return the name that a trace gets when nobody says another: the file's, without its endings.

    Examples
    --------
    >>> topic_of("data/orders_1min.csv.gz")
    'orders_1min'
    """
    return Path(path).name.removesuffix(".gz").removesuffix(".csv")


def spread(series: ArrivalSeries, partitions: int, skew: str = "zipf:1.0", seed: int = 0) -> ArrivalSeries:
    """Spread one series over the partitions of a topic.

    Each record goes to partition ``i`` with probability proportional to ``1 / (i + 1) ** s``: partition 0 is the
    hottest. Whole counts are drawn (multinomial) and keep their sum; decimals are divided in proportion.

    Parameters
    ----------
    series
        A series of one row.
    partitions
        How many partitions.
    skew
        ``zipf:S`` with S >= 0, or ``even`` (the same as ``zipf:0``).
    seed
        Seed of the draw.

    Raises
    ------
    InputRefused
        If the series has several rows, or skew or partitions cannot be used.

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> one = ArrivalSeries("t", TimeGrid(60), 0, (0,), np.array([[100.0, 0.0]]), np.array([[True, True]]))
    >>> four = spread(one, 4, "zipf:1.0", seed=0)
    >>> four.counts.sum(axis=0).tolist()
    [100.0, 0.0]
    """
    if len(series.partitions) != 1:
        raise InputRefused(f"{series.topic} has {len(series.partitions)} series; pick one of them to be spread")
    if partitions < 1:
        raise InputRefused(f"partitions={partitions} must be 1 or more")
    share = _shares(partitions, skew)
    row = series.counts[0]
    whole = np.floor(row)
    if (row == whole).all():
        drawn = np.random.default_rng(seed).multinomial(whole.astype(np.int64), share)
        counts = np.ascontiguousarray(drawn.T, dtype=np.float64)
    else:
        counts = share[:, None] * row[None, :]
    known = np.repeat(series.known, partitions, axis=0)
    return replace(series, partitions=tuple(range(partitions)), counts=counts, known=known, names=None)


def _shares(partitions: int, skew: str) -> NDArray[np.float64]:
    kind, _, text = skew.partition(":")
    try:
        exponent = 0.0 if skew == "even" else float(text)
    except ValueError:
        exponent = -1.0
    if (skew != "even" and kind != "zipf") or not 0 <= exponent < math.inf:
        raise InputRefused(f"skew {skew!r} is not zipf:S with S >= 0 (such as zipf:1.0), or even")
    weights = np.arange(1, partitions + 1, dtype=np.float64) ** -exponent
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _partition_order(names: list[str]) -> NDArray[np.int64]:
    """Return the partition number of each series: its own name where the names are exactly 0 … n-1."""
    numbers = {str(i): i for i in range(len(names))}
    if set(names) == set(numbers):
        return np.array([numbers[name] for name in names], dtype=np.int64)
    return np.arange(len(names), dtype=np.int64)

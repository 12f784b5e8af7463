"""Recorded series as documents: arrivals and lag, latency, and what was learned of a group."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from forecaster.stores.base import Cells, SeriesKey
from headway.api.problems import problem
from headway.application import Application
from headway.status.board import GroupView
from headway.status.wire import Document, instant
from headway.work.learned_series import CAPACITY, LEAD_TIME

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_CELLS = 500_000
READ_CELLS = 2_000_000

BY_PARTITION = {
    "arrivals": ("arrivals", "records/s", None),
    "lag": ("lag", "records", 1.0),
    "latency": ("latency_ms", "seconds", 1000.0),
}
"""Name → what is stored of it, unit, and by what it is divided (None: seconds of a step)."""
OF_THE_GROUP = {"capacity": (CAPACITY, "records/s", "records_per_s"), "lead_time": (LEAD_TIME, "seconds", "seconds")}


def latency(app: Application, view: GroupView, start_at: datetime, end_at: datetime) -> Document:
    """Return the 99th percentile a step over the partitions of the group's topics; of a replay what it measured.

    A step between two known ones of which nothing is known has None, so that nobody draws a line through it.
    """
    document: Document = {"name": "latency", "unit": "seconds", "resolution_s": None}
    found: dict[int, list[int]] = {}
    for topic in view.topics:
        step_s, first, cells = _cells(app, topic, "latency_ms", view.name, start_at, end_at)
        document["resolution_s"] = max(document["resolution_s"] or 0, step_s)
        known = np.flatnonzero(cells.known.any(axis=0)).tolist()
        for step in range(known[0], known[-1] + 1) if known else ():
            found.setdefault((first + step + 1) * step_s, []).extend(cells.values[cells.known[:, step], step].tolist())
    points: list[tuple[datetime, float | None]] = [
        (datetime.fromtimestamp(at, UTC), float(np.percentile(ms, 99)) / 1000 if ms else None)
        for at, ms in sorted(found.items())
    ]
    chosen = points or [point for point in view.latencies if start_at <= point[0] < end_at]
    document["points"] = [{"at": instant(at), "p99_s": None if s is None else round(s, 3)} for at, s in chosen]
    return document


def of_the_group(app: Application, view: GroupView, name: str, start_at: datetime, end_at: datetime) -> Document:
    """Return what was learned of the group as a whole, one point a step at which it was known."""
    metric, unit, field = OF_THE_GROUP[name]
    points = []
    for topic in view.topics[:1]:
        step_s, first, cells = _cells(app, topic, metric, view.name, start_at, end_at)
        for step in np.flatnonzero(cells.known.any(axis=0)).tolist():
            at = instant(datetime.fromtimestamp((first + step) * step_s, UTC))
            points.append({"at": at, field: int(cells.values[0, step]) / 1000})
    return {"name": name, "unit": unit, "points": points}


def _cells(
    app: Application, topic: str, metric: str, group: str, start_at: datetime, end_at: datetime
) -> tuple[int, int, Cells]:
    meta = app.store.meta(topic)
    step_s = meta.step_s if meta is not None else app.settings.grid(group).step_s
    first, end = int(start_at.timestamp() // step_s), int(end_at.timestamp() // step_s)
    count = meta.partitions if meta is not None else 1
    first = max(first, end - MAX_CELLS // max(count, 1))  # the newest, where all would be too much at once
    return step_s, first, app.store.read(SeriesKey(topic, metric, group, step_s), first, end)


def recorded(
    app: Application, view: GroupView, name: str, topic: str, by: str, start_at: datetime, end_at: datetime
) -> Document | Response:
    """Return arrivals, lag or (by partition) latency of one topic, or the problem that they are too many."""
    grid = app.settings.grid(view.name)
    meta = app.store.meta(topic)
    step_s = meta.step_s if meta is not None else grid.step_s
    first, end = int(start_at.timestamp() // step_s), int(end_at.timestamp() // step_s)
    width = max(meta.partitions if meta is not None else 1, 1)
    size = (end - first) * (width if by == "partition" else 1)
    if size > MAX_CELLS:
        return problem(422, "Too much at once", f"{size} cells; ask for at most {MAX_CELLS}: a shorter range")
    metric, unit, divisor = BY_PARTITION[name]
    key = SeriesKey(topic, metric, None if name == "arrivals" else view.name, step_s)
    divisor = divisor or float(step_s)
    document: Document = {
        "name": name,
        "topic": topic,
        "unit": unit,
        "step_s": step_s,
        "from": instant(datetime.fromtimestamp(first * step_s, UTC)),
    }
    if by == "topic":
        total, known = _total(app, key, first, end, max(READ_CELLS // width, 1))
        document["values"] = _with_nulls(total / divisor, known)
    else:
        cells = app.store.read(key, first, end)
        document["partitions"] = [
            {"partition": p, "values": _with_nulls(cells.values[p] / divisor, cells.known[p])}
            for p in range(cells.partitions)
        ]
    return document


def _total(app: Application, key: SeriesKey, first: int, end: int, each: int) -> tuple[Floats, Mask]:
    """Return the sum over partitions and where all of them are known, read a part at a time."""
    totals, knowns = [], []
    for begin in range(first, end, each):
        cells = app.store.read(key, begin, min(begin + each, end))
        steps = min(begin + each, end) - begin
        totals.append(cells.values.sum(axis=0) if cells.partitions else np.zeros(steps))
        knowns.append(cells.known.all(axis=0) if cells.partitions else np.zeros(steps, dtype=bool))
    return np.concatenate(totals or [np.zeros(0)]), np.concatenate(knowns or [np.zeros(0, dtype=bool)])


def _with_nulls(values: Floats, known: Mask) -> list[float | None]:
    return [v if k else None for v, k in zip(np.round(values, 4).tolist(), known.tolist(), strict=True)]

"""What the page's panels are drawn from: overview, heat map, owners, windows, timeline, and past forecasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from starlette.responses import Response

from balancer.errors import PlanStoreUnavailable
from balancer.prescaling import spans
from forecaster.forecast import Forecast
from forecaster.stores.base import SeriesKey
from forecaster.topics import GroupId
from headway.api.groups import App, as_json
from headway.api.names import GROUP
from headway.api.problems import problem
from headway.api.series import MAX_CELLS
from headway.application import Application
from headway.configuration.durations import parse_duration
from headway.status.board import GroupView
from headway.status.evidence import by_hour, by_lead, reliability, worst
from headway.status.expectations import LEVELS, paired
from headway.status.overview import nullable, overview
from headway.status.timeline import assignment_document, summarised
from headway.status.wire import Document, encode, instant, parse_instant

router = APIRouter(prefix="/v1", tags=["panels"])
MAX_RANGE = timedelta(days=63)
RECALLED = 10_000
Start = Annotated[str | None, Query(alias="from", description="ISO 8601; a day before `to` by default.")]
End = Annotated[str | None, Query(description="ISO 8601; now by default.")]
Topic = Annotated[str | None, Query(description="One of the group's topics; the first by default.")]


def _between(app: Application, start: str | None, to: str | None) -> tuple[datetime, datetime]:
    """Return the range that is asked for; raises ValueError where it cannot be meant."""
    end_at = parse_instant(to) if to is not None else app.clock()
    try:
        start_at = parse_instant(start) if start is not None else end_at - timedelta(days=1)
    except OverflowError:
        raise ValueError(f"to={to} is out of range") from None
    if not timedelta(0) < end_at - start_at <= MAX_RANGE:
        raise ValueError(f"from must lie before to, by at most {MAX_RANGE.days} days")
    return start_at, end_at


def _topic(view: GroupView, topic: str | None) -> str | None:
    chosen = topic if topic is not None else (view.topics[0] if view.topics else None)
    return chosen if chosen in view.topics else None


def _asked(
    app: Application, view: GroupView, topic: str | None, start: str | None, to: str | None
) -> tuple[str, datetime, datetime] | Response:
    """Return the topic and the range that are asked for, or the problem with them."""
    chosen = _topic(view, topic)
    if chosen is None:
        return _no_topic(view)
    try:
        return chosen, *_between(app, start, to)
    except ValueError as error:
        return problem(422, "Not understood", str(error))


def _no_topic(view: GroupView) -> Response:
    return problem(404, "Unknown topic", f"group {view.name} reads {', '.join(view.topics) or 'no topic yet'}")


@router.get("/overview", summary="All groups at a glance")
def get_overview(app: App) -> Response:
    """Return every group's state with its last day, the hours ahead, and what it cost beside a reactive rule."""
    return as_json(encode(overview(app, app.clock())))


@router.get(f"{GROUP}/heatmap", summary="Partitions over time")
def heatmap(
    group: str,
    app: App,
    name: Annotated[Literal["arrivals", "lag"], Query()] = "arrivals",
    start: Start = None,
    to: End = None,
    columns: Annotated[int, Query(ge=1, le=400, description="How many columns of time.")] = 120,
    topic: Topic = None,
) -> Response:
    """Return one row a partition: means over columns of time, the forecast behind them, and when each saturates."""
    view = app.view(group)
    asked = _asked(app, view, topic, start, to)
    if isinstance(asked, Response):
        return asked
    chosen, start_at, end_at = asked
    meta = app.store.meta(chosen)
    step_s = meta.step_s if meta is not None else app.settings.grid(group).step_s
    steps = max(int((end_at - start_at).total_seconds()) // step_s, 1)
    per = -(-steps // columns)
    end = -(-(int(end_at.timestamp()) // step_s) // per) * per
    first = end - -(-steps // per) * per
    width = max(meta.partitions if meta is not None else 1, 1)
    if (end - first) * width > 40 * MAX_CELLS or (end - first) // per * width > MAX_CELLS:
        return problem(422, "Too much at once", f"{(end - first) * width} cells; ask for a shorter range")
    key = ("heatmap", name, chosen, first, end, per)
    return as_json(app.board.rendered(group, key, lambda _: _heat(app, view, name, chosen, step_s, first, end, per)))


def _heat(
    app: Application, view: GroupView, name: str, topic: str, step_s: int, first: int, end: int, per: int
) -> Document:
    cells = app.store.read(SeriesKey(topic, name, view.name if name == "lag" else None, step_s), first, end)
    # where any number of members shares a partition, one member's capacity is no limit of it
    capacity = view.capacity_per_member if app.settings.policy(view.name).cap_at_partitions else None
    values = _means(cells.values, cells.known, per) / (step_s if name == "arrivals" else 1.0)
    document: Document = {
        "name": name,
        "topic": topic,
        "unit": "records/s" if name == "arrivals" else "records",
        "from": instant(datetime.fromtimestamp(first * step_s, UTC)),
        "step_s": step_s * per,
        "capacity_per_member": capacity,
        "partitions": list(range(cells.partitions)),
        "values": [nullable(row, 3) for row in values],
        "ahead": None,
        "hot": [],
    }
    forecast = view.forecasts.get(topic)
    if name == "arrivals" and isinstance(forecast, Forecast):
        document |= _ahead(forecast, step_s * per, (end - first) // per, capacity, values)
    return document


def _means(values: NDArray[np.int64], known: NDArray[np.bool_], per: int) -> NDArray[np.float64]:
    shape = (values.shape[0], values.shape[1] // per, per)
    counts = known.reshape(shape).sum(axis=2)
    sums = np.where(known, values, 0).reshape(shape).sum(axis=2)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _ahead(forecast: Forecast, bin_s: int, columns: int, capacity: float | None, past: NDArray[np.float64]) -> Document:
    """Return the forecast of each partition in the same bins, and the ten busiest with when they outgrow a member."""
    per = max(int(bin_s // forecast.step.total_seconds()), 1)
    count = min(forecast.steps // per, max(columns // 2, 1))
    median = forecast.at_level(0.5) if 0.5 in forecast.levels else forecast.rates[:, :, 0]
    high = forecast.at_level(0.95) if 0.95 in forecast.levels else forecast.rates[:, :, -1]
    coarse = median[:, : count * per].reshape(len(forecast.partitions), count, per).mean(axis=2)
    peaks = high.max(axis=1) if high.shape[1] else np.zeros(len(forecast.partitions))
    hot = []
    for row in np.argsort(-peaks)[:10]:
        beyond = np.flatnonzero(high[row] > capacity) if capacity else np.zeros(0, dtype=np.int64)
        at = forecast.origin + int(beyond[0]) * forecast.step if beyond.size else None
        number = forecast.partitions[int(row)]
        now = past[number][~np.isnan(past[number])] if number < past.shape[0] else np.zeros(0)
        hot.append(
            {
                "partition": number,
                "rate": round(float(now[-1]), 4) if now.size else None,
                "peak": round(float(peaks[row]), 4),
                "share": None if not capacity else round(float(peaks[row]) / capacity, 4),
                "saturates_at": None if at is None else instant(at),
            }
        )
    rows = {p: nullable(coarse[i], 3) for i, p in enumerate(forecast.partitions)}
    return {
        "ahead": {
            "from": instant(forecast.origin),
            "step_s": forecast.step.total_seconds() * per,
            "partitions": list(rows),
            "values": list(rows.values()),
        },
        "hot": hot,
    }


@router.get(f"{GROUP}/assignment", summary="Who owns what")
async def assignment(group: str, app: App, since: Annotated[str | None, Query()] = None) -> Response:
    """Return members with their partitions and loads, the skew, and the changes of owners that were seen."""
    view = app.view(group)
    try:
        start = parse_instant(since) if since is not None else app.clock() - timedelta(days=1)
    except ValueError as error:
        return problem(422, "Not understood", f"since: {error}")
    if view.snapshot is None:
        why = view.problems.get("snapshot") or "the group has not been seen yet; the first look comes within seconds"
        return as_json(encode({"at": None, "members": None, "unowned": [], "skew": None, "changes": [], "why": why}))
    document = assignment_document(view.snapshot)
    document |= {"capacity_per_member": view.capacity_per_member, "changes": app.timeline.moves(group, start)}
    return as_json(encode(document))


@router.get(f"{GROUP}/windows", summary="Pre-scaling on the time axis")
def windows(group: str, app: App, start: Start = None, to: End = None) -> Response:
    """Return when each pre-scaling window and event of a group begins and ends within a range."""
    app.view(group)
    try:
        start_at, end_at = _between(app, start, to)
    except ValueError as error:
        return problem(422, "Not understood", str(error))
    found = spans(app.operations.rules(group), start_at, end_at)
    rows = [
        {"from": instant(s.start), "to": instant(s.end), "name": s.rule.name, "text": s.rule.text} for s in found[:500]
    ]
    return as_json(encode({"windows": rows}))


@router.get(f"{GROUP}/timeline", summary="Decisions that changed something")
def timeline(group: str, app: App, since: Annotated[str | None, Query()] = None) -> Response:
    """Return the decisions that differ from the one before, oldest first; each in full is under ``decisions``."""
    view = app.view(group)
    try:
        start = parse_instant(since) if since is not None else app.clock() - timedelta(days=1)
    except ValueError as error:
        return problem(422, "Not understood", f"since: {error}")
    if group not in app.recalled:
        app.recalled.add(group)
        try:
            kept = app.plans.decisions(GroupId(group), app.clock() - timedelta(days=1), RECALLED)
            app.timeline.recall(group, [summarised(d.plan, d.mode) for d in kept])
        except PlanStoreUnavailable:
            app.recalled.discard(group)
    return as_json(encode({"group": view.name, "changes": app.timeline.decisions(group, start)}))


@router.get(f"{GROUP}/expected", summary="What was expected")
def expected(
    group: str,
    app: App,
    lead: Annotated[str, Query(description="How long before each instant it was said.")] = "1h",
    origin: Annotated[str | None, Query(description="Instead: the whole forecast that held at this instant.")] = None,
    start: Start = None,
    to: End = None,
    topic: Topic = None,
) -> Response:
    """Return past forecasts as they were made: what was said a lead before, or everything said at one instant."""
    asked = _asked(app, app.view(group), topic, start, to)
    if isinstance(asked, Response):
        return asked
    chosen, start_at, end_at = asked
    try:
        lead_s = parse_duration(lead).total_seconds()
        at = parse_instant(origin) if origin is not None else None
    except (ValueError, OverflowError) as error:
        return problem(422, "Not understood", str(error))
    kept = app.expectations.of(chosen)
    rows = []
    if at is not None:
        held = [e for e in kept if e.origin <= at][-1:]
        rows = [(e.origin.timestamp() + k * e.step_s, e.total[k]) for e in held for k in range(e.steps)]
    else:
        for e in kept:
            k = int(lead_s // e.step_s)
            when = e.origin.timestamp() + k * e.step_s
            if k < e.steps and start_at.timestamp() <= when < end_at.timestamp():
                rows.append((when, e.total[k]))
    low, middle, high = LEVELS.index(0.1), LEVELS.index(0.5), LEVELS.index(0.95)
    points = [
        {
            "at": instant(datetime.fromtimestamp(int(when), UTC)),
            "low": nullable(np.array([total[low]], dtype=np.float64))[0],
            "median": nullable(np.array([total[middle]], dtype=np.float64))[0],
            "high": nullable(np.array([total[high]], dtype=np.float64))[0],
        }
        for when, total in rows
    ]
    made = None if at is None or not points else points[0]["at"]
    return as_json(encode({"topic": chosen, "unit": "records/s", "lead_s": lead_s, "origin": made, "points": points}))


@router.get(f"{GROUP}/quality", summary="May the forecast be trusted")
def quality(group: str, app: App, topic: Topic = None) -> Response:
    """Return error and coverage of the last week's forecasts by lead and by hour of week, and the worst hours."""
    view = app.view(group)
    chosen = _topic(view, topic)
    if chosen is None:
        return _no_topic(view)
    kept = app.expectations.of(chosen)
    grid = app.settings.grid(group)
    document: Document = {
        "topic": chosen,
        "forecasts": len(kept),
        "since": None if not kept else instant(kept[0].origin),
        "leads": [],
        "hours": [],
        "reliability": {},
        "worst": [],
        "timezone": grid.timezone,
        "why": None,
    }
    if not kept:
        document["why"] = "no forecast has been kept yet; the first is scored a quarter of an hour after it was made"
        return as_json(encode(document))
    now = app.clock()
    totals = app.long_totals.of(chosen, now)
    if totals is None:
        document["why"] = "nothing has been recorded yet that the forecasts could be compared with"
        return as_json(encode(document))
    pairs = paired(kept, totals.first_index, totals.step_s, totals.rates)
    named = [(s.start, s.end, s.rule.text) for s in spans(app.operations.rules(group), kept[0].origin, now)]
    document |= {
        "leads": by_lead(pairs),
        "hours": by_hour(pairs, grid.timezone),
        "reliability": reliability(pairs),
        "worst": worst(pairs, named),
    }
    if not document["leads"]:
        document["why"] = "what was forecast has not come yet; look again in a quarter of an hour"
    return as_json(encode(document))

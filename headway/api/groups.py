"""What is known of groups: ``/v1/groups`` and everything below it that only reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from balancer.errors import PlanStoreUnavailable
from forecaster.forecast import Forecast
from forecaster.topics import GroupId
from headway.api.names import GROUP
from headway.api.problems import problem
from headway.api.series import BY_PARTITION, OF_THE_GROUP, latency, of_the_group, recorded
from headway.application import Application
from headway.configuration.durations import parse_duration
from headway.operation.replaying import replay
from headway.status.board import group_document, plan_view
from headway.status.member_points import member_points
from headway.status.wire import Document, decision_document, encode, forecast_document, instant, parse_instant

router = APIRouter(prefix="/v1", tags=["groups"])
JSON = "application/json"


async def application(request: Request) -> Application:
    """Return the application that this server serves."""
    app: Application = request.app.state.application
    return app


App = Annotated[Application, Depends(application)]
By = Annotated[Literal["partition", "topic"], Query(description="One row a partition, or the topic's total.")]


def as_json(body: bytes, **headers: str) -> Response:
    """Return bytes that are JSON already."""
    return Response(body, 200, headers, JSON)


@router.get("/groups", summary="All groups")
async def groups(app: App) -> Response:
    """List the groups with their state, those that need a person first."""
    now = app.clock()
    order = {"attention": 0, "acting": 1, "fine": 2}
    found = [group_document(view, now) for name in app.board.names if (view := app.board.get(name)) is not None]
    found.sort(key=lambda d: (order[d["state"]], d["group"]))
    return as_json(encode({"groups": found, "now": instant(now)}))


@router.get(GROUP, summary="One group")
async def group(group: str, app: App) -> Response:
    """Say how a group stands: mode, rung, gate, what bounds it, and the age of every input."""
    return as_json(encode(group_document(app.view(group), app.clock())))


@router.get(f"{GROUP}/forecast", summary="Its forecast")
async def forecast(
    group: str,
    app: App,
    horizon: Annotated[str | None, Query(description="How far ahead, such as 6h; all there is by default.")] = None,
    levels: Annotated[str | None, Query(description="Quantile levels, such as .5,.9; all by default.")] = None,
    by: By = "partition",
    topic: Annotated[str | None, Query(description="One of the group's topics; the first by default.")] = None,
) -> Response:
    """Return quantiles of the arrival rate (records/s), or ``values: null`` with the reason and when it will be."""
    view = app.view(group)
    name = topic if topic is not None else (view.topics[0] if view.topics else None)
    result = view.forecasts.totals(name) if name is not None else None
    if name is None or (name not in view.topics and result is None):
        return problem(404, "Unknown topic", f"group {group} reads {', '.join(view.topics) or 'no topic yet'}")
    if result is None:
        why = view.problems.get("forecast") or "no forecast has been made yet; the first comes with the next tick"
        empty: Document = {"topic": name, "values": None, "partitions": None, "total": None, "reasons": [why]}
        empty |= {"origin": None, "step_s": None, "levels": [], "method": None, "possible_from": None}
        return as_json(encode(empty))
    steps, wanted = None, None
    try:
        if horizon is not None and isinstance(result, Forecast):
            steps = int(parse_duration(horizon) // result.step)
        if levels is not None:
            wanted = tuple(_level(part) for part in levels.split(","))
        if isinstance(result, Forecast) and wanted is not None:
            for level in wanted:
                result.level_index(level)
    except (ValueError, KeyError, OverflowError) as error:
        return problem(422, "Not understood", str(error).strip("'\""))
    body = app.board.rendered(
        group,
        ("forecast", name, steps, wanted, by),
        lambda now: forecast_document(result if by == "topic" else now.forecasts[name], wanted, steps, by),
    )
    return as_json(body)


def _level(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"levels: {text!r} is no quantile level; write them like .5,.9,.95") from None


@router.get(f"{GROUP}/plan", summary="Its plan")
async def plan(group: str, app: App) -> Response:
    """Return the members over the horizon, with the reasons and what bounds them."""
    app.view(group)
    return as_json(app.board.rendered(group, "plan", plan_view))


@router.get(f"{GROUP}/decisions", summary="What it decided")
def decisions(
    group: str,
    app: App,
    since: Annotated[str | None, Query(description="ISO 8601 instant; the last day by default.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    inputs: Annotated[bool, Query(description="Also everything that each decision was made from.")] = False,
) -> Response:
    """Return decisions, oldest first; from memory and marked ``stale`` while the store is away."""
    view = app.view(group)
    now = app.clock()
    try:
        start = parse_instant(since) if since is not None else now - timedelta(days=1)
    except ValueError as error:
        return problem(422, "Not understood", f"since: {error}")
    stale = False
    try:
        found = list(app.plans.decisions(GroupId(group), start, limit))
    except PlanStoreUnavailable:
        found, stale = [d for d in view.decisions if d.at >= start][-limit:], True
    return as_json(encode({"decisions": [decision_document(d, inputs=inputs) for d in found], "stale": stale}))


@router.get(f"{GROUP}/replay", summary="A decision computed again")
def replayed(group: str, app: App, id: Annotated[str, Query(description="Of a decision of this group.")]) -> Response:
    """Compute a kept decision again from its stored inputs; ``same`` is what it must be, nothing is changed by it."""
    app.view(group)
    if id.rpartition("@")[0] != group:
        return problem(404, "Unknown decision", f"{id[:80]!r} is no decision of {group}; GET decisions lists them")
    done = replay(app.plans, id)
    state = "different" if done.differences else "same"
    document = {"id": id, "state": state, "replicas": done.again["steps"][0]["replicas"]}
    return as_json(encode(document | {"differences": list(done.differences), "reasons": done.again["reasons"]}))


@router.get(f"{GROUP}/scaler", summary="The number for a scaler")
async def scaler(group: str, app: App) -> Response:
    """Return the number of members with its age; 503 rather than a guess when there is none fresh enough.

    Where KEDA scales (actuator ``keda``) it is what was released in mode ``act``, as over gRPC; elsewhere the plan's.
    """
    view, now = app.view(group), app.clock()
    own = app.settings.group(group)
    polled = own is not None and own.actuator is not None and own.actuator.kind == "keda"
    if polled:
        posted = app.posts.posted(GroupId(group))
        replicas, at = (None, None) if posted is None else (posted.replicas, posted.at)
    else:
        replicas, at = (None if view.plan is None else view.plan.replicas), view.at.get("plan")
    if view.paused and not polled:
        return problem(503, "Paused", "acting is paused: hold what is there", headers={"Retry-After": "15"})
    if replicas is None or at is None:
        title = "Nothing released" if polled else "No plan yet"
        why = (
            f"KEDA gets a number in mode act alone, the mode is {view.mode}: " if polled and view.mode != "act" else ""
        )
        return problem(503, title, f"{why}hold what is there", headers={"Retry-After": "5"})
    age = (now - at).total_seconds()
    if age > app.posts.max_age.total_seconds():
        return problem(
            503, "Plan too old", f"the last plan is {age:.0f} s old; hold what is there", headers={"Retry-After": "5"}
        )
    return as_json(encode({"replicas": replicas, "age_s": round(max(age, 0.0), 3)}))


@router.get(f"{GROUP}/moves", summary="Moves under way")
def moves(group: str, app: App) -> Response:
    """Return hand-overs and splits that are under way or ended lately."""
    app.view(group)
    return as_json(encode({"moves": app.moves(group)}))


@router.get(f"{GROUP}/series", summary="What was recorded")
def series(
    group: str,
    app: App,
    name: Annotated[Literal["arrivals", "lag", "latency", "replicas", "capacity", "lead_time"], Query()] = "arrivals",
    by: By = "topic",
    start: Annotated[str | None, Query(alias="from", description="ISO 8601; a day before `to` by default.")] = None,
    to: Annotated[str | None, Query(description="ISO 8601; now by default.")] = None,
    topic: Annotated[str | None, Query()] = None,
) -> Response:
    """Return a recorded series; what is not known is null, or has no point.

    Arrivals in records/s, lag in records; latency as the 99th percentile over the partitions whose delay is known, in
    seconds, too high by up to ``resolution_s``; capacity of a member in records/s and lead time in seconds, as learned
    or set. By partition there are arrivals, lag and latency; replicas are of the group whatever `by` says.
    """
    view = app.view(group)
    if by == "partition" and name in OF_THE_GROUP:
        what = f"{name} is of the group; by=partition goes with {', '.join(BY_PARTITION)}"
        return problem(422, "Not understood", what)
    try:
        end_at = parse_instant(to) if to is not None else app.clock()
        start_at = parse_instant(start) if start is not None else end_at - timedelta(days=1)
    except (ValueError, OverflowError) as error:
        return problem(422, "Not understood", str(error))
    if start_at >= end_at:
        return problem(422, "Not understood", "from must lie before to")
    if name == "replicas":
        return as_json(encode({"name": name, "unit": "members", "points": member_points(app, view, start_at, end_at)}))
    if name == "latency" and by == "topic":
        return as_json(encode(latency(app, view, start_at, end_at)))
    if name in OF_THE_GROUP:
        return as_json(encode(of_the_group(app, view, name, start_at, end_at)))
    chosen = topic if topic is not None else (view.topics[0] if view.topics else None)
    if chosen is None or chosen not in view.topics:
        return problem(404, "Unknown topic", f"group {group} reads {', '.join(view.topics) or 'no topic yet'}")
    found = recorded(app, view, name, chosen, by, start_at, end_at)
    return found if isinstance(found, Response) else as_json(encode(found))

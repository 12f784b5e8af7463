"""What changes something: modes, pauses, approvals, pre-scaling, push ingest, and what-if (which changes nothing)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from forecaster.ingest.push import MAX_PARTITION, PushedRow, push
from forecaster.stores.entry import MOST_RECORDS
from headway.api.groups import App, as_json
from headway.api.names import GROUP
from headway.api.problems import problem
from headway.configuration.durations import parse_duration
from headway.configuration.sections import Mode
from headway.operation.operations import ALL
from headway.status.board import GroupView
from headway.status.wire import encode, instant, parse_instant

router = APIRouter(prefix="/v1", tags=["operate"])
Actor = Annotated[str, Header(alias="X-Headway-Actor", max_length=200, description="Who does this, for the audit.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModeBody(_Strict):
    """The mode that a group shall have."""

    mode: Mode


@router.put(f"{GROUP}/mode", summary="Set the mode")
def put_mode(group: str, body: ModeBody, app: App, actor: Actor = "api") -> Response:
    """Set off, recommend, shadow or act; act is refused (409) while a gate is closed, with the reasons."""
    app.set_mode(group, body.mode, actor, app.clock())
    return as_json(encode({"group": group, "state": str(body.mode)}))


class PauseBody(_Strict):
    """A pause: for a while (``"for": "2h"``), until lifted (``{}``), or lifted now (``"paused": false``)."""

    paused: bool = True
    duration: Annotated[str | None, Field(alias="for")] = None


@router.put(f"{GROUP}/pause", summary="Pause or resume")
def put_pause(group: str, body: PauseBody, app: App, actor: Actor = "api") -> Response:
    """Stop or resume acting; the group ``*`` is everybody."""
    if group != ALL:
        app.view(group)
    now = app.clock()
    try:
        duration = None if body.duration is None else parse_duration(body.duration)
        until = None if duration is None else now + duration
        if body.paused:
            app.operations.pause(group, actor, now, duration)
        else:
            app.operations.resume(group, actor, now)
    except (ValueError, OverflowError) as error:
        return problem(422, "Not understood", f"for: {error}")

    def note(view: GroupView) -> None:
        view.paused, view.paused_until = body.paused, until if body.paused else None

    for name in app.board.names if group == ALL else (group,):
        app.board.update(name, "pause", note)
    state = "paused" if body.paused else "running"
    return as_json(encode({"group": group, "state": state, "until": None if until is None else instant(until)}))


class ApprovalBody(_Strict):
    """The plan that is approved; the latest by default."""

    version: Annotated[int | None, Field(ge=0, le=MOST_RECORDS)] = None


@router.post(f"{GROUP}/approvals", summary="Approve a plan")
def post_approval(group: str, body: ApprovalBody, app: App, actor: Actor = "api") -> Response:
    """Approve the latest plan, or say that the named one has been replaced (409)."""
    app.view(group)
    version = app.operations.approve(group, body.version, actor, app.clock())
    return as_json(encode({"group": group, "state": "approved", "version": version}))


@router.get("/prescale", summary="Pre-scaling windows and events")
def get_prescale(app: App) -> Response:
    """Return all windows and events."""
    return as_json(encode({"windows": [w.to_document() for w in app.operations.prescales()]}))


@router.post("/prescale", summary="Add a window or an event", status_code=201)
def post_prescale(body: Annotated[dict[str, Any], Body()], app: App, actor: Actor = "api") -> Response:
    """Add ``{group, from, to, replicas}``, ``{cron, timezone, duration, at_least}`` or ``{name, from, to, factor}``."""
    window = app.operations.add_prescale(body, actor, app.clock())
    response = as_json(encode(window.to_document()))
    response.status_code = 201
    return response


@router.delete("/prescale", summary="Remove a window or an event")
def delete_prescale(id: str, app: App, actor: Actor = "api") -> Response:
    """Remove the window or event of that id."""
    if not app.operations.remove_prescale(id, actor, app.clock()):
        return problem(404, "Unknown window", f"there is no window {id[:80]!r}; GET /v1/prescale lists them")
    return as_json(encode({"id": id, "state": "removed"}))


class Row(_Strict):
    """Records that arrived in one partition in the step from ``start`` on."""

    start: datetime
    partition: Annotated[int, Field(ge=0, lt=MAX_PARTITION)] = 0
    count: Annotated[int, Field(ge=0, le=2**53)]

    @field_validator("start", mode="before")
    @classmethod
    def _instant(cls, value: object) -> datetime:
        if not isinstance(value, str):
            raise ValueError("start must be ISO 8601 text with a zone")
        return parse_instant(value)


class Arrivals(_Strict):
    """Complete steps of one topic."""

    step_s: Annotated[int, Field(ge=1, le=86_400)]
    rows: Annotated[list[Row], Field(min_length=1, max_length=100_000)]


@router.post("/topics/{topic}/arrivals", summary="Push arrivals")
def post_arrivals(topic: str, body: Arrivals, app: App) -> Response:
    """Record counts of steps: all rows, or none if one cannot be meant; sending them again changes nothing."""
    watched = {t for name in app.board.names if (view := app.board.get(name)) is not None for t in view.topics}
    if topic not in watched:
        return problem(404, "Unknown topic", f"no group reads {topic[:80]!r}; add it to a group's topics first")
    rows = [PushedRow(row.start, row.partition, row.count) for row in body.rows]
    done = push(app.store, topic, body.step_s, rows, app.clock())
    for name in app.board.names:
        view = app.board.get(name)
        if view is not None and topic in view.topics:
            app.board.update(name, "arrivals", lambda v: None, app.clock())
    return as_json(encode({"rows": done.rows, "steps": done.steps, "partitions": done.partitions}))


class WhatIfSpan(_Strict):
    """A span of the recorded past; without an edge, the last four weeks up to now."""

    start: Annotated[str | None, Field(alias="from")] = None
    end: Annotated[str | None, Field(alias="to")] = None

    @field_validator("start", "end")
    @classmethod
    def _instant(cls, value: str | None) -> str | None:
        if value is not None:
            parse_instant(value)
        return value


class WhatIfBody(_Strict):
    """What to assume instead: policy fields, a capacity, or a factor on the demand."""

    policy: Annotated[dict[str, Any], Field(default_factory=dict)]
    capacity: Annotated[float | None, Field(gt=0, lt=1e12)] = None
    demand_factor: Annotated[float | None, Field(gt=0, lt=1000)] = None
    history: WhatIfSpan | None = None
    """Instead of a plan: what this span of the recorded past would have cost; ``{}`` is the last four weeks."""


@router.post(f"{GROUP}/plan", summary="What if")
async def what_if(group: str, body: WhatIfBody, request: Request, app: App) -> Response:
    """Plan again under other assumptions; nothing changes. Bounded: 429 when too many are under way."""
    app.view(group)
    if app.what_if is None:
        return problem(503, "Not available now", "this server does not plan", headers={"Retry-After": "60"})
    slots: asyncio.Semaphore = request.app.state.whatif_slots
    if slots.locked():
        return problem(429, "Busy", "other what-ifs are under way; come back", headers={"Retry-After": "2"})
    async with slots:
        document = await run_in_threadpool(app.what_if, group, body.model_dump(by_alias=True), app.clock())
    return as_json(encode(document))

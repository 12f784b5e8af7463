"""How the server itself stands: health, readiness, metrics, jobs, audit, and the stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sse_starlette import EventSourceResponse
from starlette.responses import Response

from headway.api.groups import App, as_json
from headway.api.problems import problem, unavailable
from headway.status.board import Event
from headway.status.group_metrics import GroupMetrics
from headway.status.wire import encode, parse_instant

router = APIRouter(tags=["status"])
MAX_LISTENERS = 64


class Listener:
    """One reader of the events: a slow one loses the oldest, and None ends the stream."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=256)

    def put(self, event: Event | None) -> None:
        """Add an event; called in the server's loop."""
        if self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(event)


@router.get("/healthz", summary="Is the process alive")
async def healthz() -> Response:
    """Answer that the process lives; independent of every dependency."""
    return as_json(b'{"status":"alive"}')


@router.get("/readyz", summary="May it be asked")
async def readyz(app: App) -> Response:
    """Answer 200 once the first tick is over, else 503."""
    if not app.ready:
        return unavailable("; ".join(app.board.troubles.values()) or "the first tick has not ended yet")
    return as_json(b'{"status":"ready"}')


@router.get("/metrics", summary="Prometheus metrics")
async def metrics(app: App) -> Response:
    """Return Headway's own metrics in Prometheus' text format."""
    return Response(
        app.metrics.text(GroupMetrics(app.board, app.clock())),
        200,
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


@router.get("/v1/jobs", summary="Scheduled jobs")
async def jobs(app: App) -> Response:
    """Return each job's last result, duration and next run."""
    return as_json(encode({"jobs": list(app.jobs.status()) if app.jobs is not None else []}))


@router.get("/v1/audit", summary="Who changed what")
def audit(
    app: App,
    since: Annotated[str | None, Query(description="ISO 8601 instant.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """Return operators' actions, oldest first."""
    try:
        start = None if since is None else parse_instant(since)
    except ValueError as error:
        return problem(422, "Not understood", f"since: {error}")
    return as_json(encode({"entries": app.audit_entries(start, limit)}))


@router.get("/v1/events", summary="Changes as they happen", response_class=EventSourceResponse)
async def events(request: Request, app: App) -> Response:
    """Send an event whenever a forecast, plan, snapshot, mode or job changes; a slow reader loses the oldest."""
    listeners: set[Listener] = request.app.state.listeners
    if len(listeners) >= MAX_LISTENERS:
        return problem(503, "Busy", f"{MAX_LISTENERS} readers listen already", headers={"Retry-After": "10"})
    reader = Listener()
    loop = asyncio.get_running_loop()
    stop = app.board.listen(lambda event: _from_any_thread(loop, reader.put, event))
    listeners.add(reader)

    async def stream() -> AsyncIterator[dict[str, str]]:
        try:
            while (event := await reader.queue.get()) is not None:
                kind, document = event
                yield {"event": kind, "data": json.dumps(document)}
        finally:
            stop()
            listeners.discard(reader)

    return EventSourceResponse(stream(), ping=15, shutdown_grace_period=2)


def _from_any_thread(loop: asyncio.AbstractEventLoop, put: Callable[[Event], None], event: Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(put, event)

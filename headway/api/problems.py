"""Errors as RFC 9457 problem details: each says what happened and what to do."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from balancer.errors import BalancerError, ObserverUnavailable, PlanStoreUnavailable, PolicyRefused, TargetUnavailable
from forecaster.errors import (
    ForecasterError,
    InputRefused,
    SampleRejected,
    SourceUnavailable,
    StoreRefused,
    StoreUnavailable,
)
from headway.errors import Forbidden, HeadwayError, NotReady, SettingsRefused, UnknownGroup

RETRY_AFTER_S = 5
_REMEDY = {
    400: "the body cannot be read; send JSON in UTF-8",
    404: "there is nothing at this address; /docs lists what there is, and a slash within a name is written %2F",
    405: "this address does not take that method; /docs lists those that it takes",
}
"""What to do where the framework itself refuses."""


def problem(status: int, title: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """Return a problem document; ``more`` are extension members."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return Response(json.dumps(body, default=str).encode(), status, headers, "application/problem+json")


def unavailable(detail: str) -> Response:
    """Return 503 with the time after which it is worth coming back."""
    return problem(503, "Not available now", detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def answer(error: Exception) -> Response:
    """Return the problem that stands for one of our own errors."""
    detail = " ".join(str(error).split())
    if isinstance(error, UnknownGroup):
        return problem(404, "Unknown group", detail, nearest=list(error.nearest))
    if isinstance(error, StoreUnavailable | PlanStoreUnavailable | SourceUnavailable | ObserverUnavailable):
        return unavailable(detail)
    if isinstance(error, TargetUnavailable | StoreRefused):  # a full disk or a wrong password is no fault of the caller
        return unavailable(detail)
    if isinstance(error, NotReady):
        return problem(409, "Not ready", detail)
    if isinstance(error, Forbidden):
        return problem(403, "Not allowed", detail)
    if isinstance(error, SettingsRefused | PolicyRefused | InputRefused | SampleRejected):
        return problem(422, "Refused", detail)
    return problem(409, "Refused", detail)


def install(app: FastAPI) -> None:
    """Make ``app`` answer every error as a problem document."""

    async def ours(request: Request, error: Exception) -> Response:
        return answer(error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers) if error.headers else None
        title = str(error.detail)
        return problem(error.status_code, title, _REMEDY.get(error.status_code, title), headers=headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        text = str(first["msg"]).removeprefix("Value error, ")
        return problem(422, "Not understood", f"{where}: {text}")

    for kind in (ForecasterError, BalancerError, HeadwayError):
        app.add_exception_handler(kind, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)

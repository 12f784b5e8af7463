"""Structured logs on stderr: one event a line, JSON unless a person watches the terminal; secrets never reach them."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRET_WORDS = ("password", "token", "secret", "authorization", "hmac_key")


def _redact(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = "[hidden]"
    return event


def configure(level: str = "info") -> None:
    """Send structlog and the standard library's loggers to stderr in one format."""
    shared, renderer = _events(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headway").setLevel(
        level.upper()
    )  # founding, moves and splits are events; clients' chatter is not
    # A run that is still under way when the next is due is seen in /v1/jobs; the scheduler would say so every tick.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def _events(level: str) -> tuple[list[Any], Any]:
    people = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
    return shared, renderer


def logger(name: str) -> Any:
    """Return a logger whose events carry ``name`` as ``part``; they never go to stdout, which belongs to results."""
    if not structlog.is_configured():
        _events("info")
    return structlog.get_logger().bind(part=name)

"""Write the reference pages from the code: terminal, settings, HTTP, metrics. Nothing here is written twice."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from balancer.policy import ScalingPolicy
from headway.configuration.durations import format_duration
from headway.configuration.sections import ActuatorSettings, Section


def write(folder: Path) -> None:
    """Write ``cli.md``, ``settings.md``, ``http.md`` and ``metrics.md`` into a folder."""
    folder.mkdir(exist_ok=True)
    pages = {"cli": terminal(), "settings": settings(), "http": http(), "metrics": metrics()}
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        target = folder / f"{name}.md"
        if not target.exists() or target.read_text() != text:  # Sphinx reads again only what changed
            target.write_text(text)


def terminal() -> Iterator[str]:
    """Yield the help of every command."""
    from headway.cli import SUMMARIES, commands, module_of
    from headway.cli.frame import help_of

    yield "# Reference: terminal\n"
    there = commands()
    for title, names in SUMMARIES.items():
        yield f"## {title}\n"
        for name in (n for n in names if n in there):
            yield f"### headway {name}\n"
            yield f"```text\n{help_of(name, import_module(module_of(name)))}\n```\n"


def settings() -> Iterator[str]:
    """Yield a table for each section of the settings file."""
    from headway.configuration.settings import Settings

    yield "# Reference: settings\n"
    yield "Every key of `headway.toml`; `[store] url` is also the environment variable `HEADWAY_STORE__URL`.\n"
    yield from _section("(top)", Settings)
    for name, model in _tables(Settings):
        yield from _section(f"[{name}]", model)
    for model in get_args(get_args(ActuatorSettings)[0]):
        yield from _section(f'actuator = {{ kind = "{get_args(model.model_fields["kind"].annotation)[0]}" }}', model)


def http() -> Iterator[str]:
    """Yield a section for each route of the OpenAPI document."""
    from fastapi import FastAPI

    from headway.api.server import ROUTERS

    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    yield "# Reference: HTTP\n"
    document = app.openapi()
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation.get('description') or operation.get('summary', '')}\n"
            parameters = operation.get("parameters", [])
            if parameters:
                yield "| parameter | in | meaning |\n|---|---|---|"
                for p in parameters:
                    meaning = p.get("description") or p["schema"].get("description") or p["schema"].get("title", "")
                    yield f"| `{p['name']}` | {p['in']} | {meaning} |"
                yield ""


def metrics() -> Iterator[str]:
    """Yield a table of everything that ``/metrics`` has."""
    from headway.status.board import Board
    from headway.status.group_metrics import GroupMetrics
    from headway.status.metrics import Metrics
    from headway.work.jobs import Jobs

    known = Metrics()
    Jobs(Board(), known)  # tells of its schedule as well
    text = known.text(GroupMetrics(Board(), datetime(2026, 1, 1, tzinfo=UTC))).decode()
    yield "# Reference: metrics\n"
    yield "What is not known is left out; a group that is gone leaves nothing behind.\n"
    yield "| metric | kind | meaning |\n|---|---|---|"
    for name, meaning, kind in re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\S+)", text):
        if not name.endswith("_created"):
            yield f"| `{name}` | {kind} | {meaning} |"


def _tables(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                yield (f"{name}.{name[:-1].upper()}" if get_origin(field.annotation) is dict else name), kind
                break


def _section(title: str, model: type[BaseModel]) -> Iterator[str]:
    tables = {name.partition(".")[0] for name, _ in _tables(model)}
    inherited = {} if (parent := model.__mro__[1]) is Section else getattr(parent, "model_fields", {})
    rows = [(n, f) for n, f in model.model_fields.items() if n not in tables and n not in inherited]
    if not rows:
        return
    yield f"## {title}\n"
    yield f"{inspect.cleandoc(model.__doc__ or '').replace('``', '`')}\n"
    yield "| key | default | meaning |\n|---|---|---|"
    said = _sayings(model)
    for name, field in rows:
        if name not in said:
            raise ValueError(f"{model.__name__}.{name} has no meaning: write it under the field")
        yield f"| `{name}` | {_default(name, field)} | {said[name]} |"
    yield ""


def _default(name: str, field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:  # a group's key that is not given has the policy's own default
        value = getattr(ScalingPolicy(), name, None)
    if value is PydanticUndefined:
        return "required"
    if value is None or value == () or value == {}:
        return "–"
    if isinstance(value, timedelta):
        return f'`"{format_duration(value)}"`'
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _sayings(model: type[BaseModel]) -> dict[str, str]:
    """Read the text that follows each field in the source: its meaning, unit and reason.

    A key of a group that is a field of the policy means what the policy says.
    """
    said: dict[str, str] = {}
    for owner in (ScalingPolicy, *reversed(model.__mro__)):
        if owner is ScalingPolicy or (issubclass(owner, BaseModel) and owner is not BaseModel):
            source = inspect.getsource(owner)
            pairs = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.M | re.S)
            said |= {name: " ".join(text.split()).replace("``", "`").replace("|", "\\|") for name, text in pairs}
    return said

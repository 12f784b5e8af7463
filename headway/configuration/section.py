"""What each table of ``headway.toml`` is: frozen, durations with units, an unknown key refused with the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from headway.configuration.durations import parse_duration

PREFIX = "HEADWAY_"
"""Of every environment variable that is read."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts that nobody outside this machine, or this pod, reaches."""


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f'{value!r} has no unit; write it as text, such as "{value}s"')


def _some_time(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than zero")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
SomeTime = Annotated[Duration, AfterValidator(_some_time)]
"""A duration that zero would make senseless."""


class Section(BaseModel):
    """A table of the settings file: unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)
    secrets: ClassVar[frozenset[str]] = frozenset()
    """Fields that may come from the environment or a file only."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        for key in data:
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.5)
                hint = f"the nearest known key is {near[0]!r}" if near else f"known: {', '.join(cls.model_fields)}"
                raise PydanticCustomError("unknown_key", "unknown key {key}; {hint}", {"key": repr(key), "hint": hint})
            kind = cls.model_fields[key].annotation
            if isinstance(data[key], bool) and bool not in (kind, *get_args(kind)):
                wrong = {"key": key, "value": str(data[key]).lower()}
                raise PydanticCustomError("no_switch", "{key} is no switch: it cannot be {value}", wrong)
        return data


def whole_tls(section: Any) -> Any:
    """Return a section whose ``tls_certificate`` and ``tls_key`` are both there, or neither."""
    if (section.tls_certificate is None) != (section.tls_key is None):
        raise ValueError("tls_certificate and tls_key go together; one is missing")
    return section

"""A file of named events: the JSON list that ``--events`` takes, with the keys of ``POST /v1/prescale``."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from forecaster.calendar import Event
from forecaster.errors import InputRefused

KEYS = ("name", "from", "to", "factor")


def read_events(file: Path) -> tuple[Event, ...]:
    """Read events.

    Parameters
    ----------
    file
        ``[{"name": "sale", "from": "2026-11-27T08:00:00Z", "to": "2026-11-28T00:00:00Z", "factor": 2.5}]``.

    Raises
    ------
    InputRefused
        If it is no such list; names the file, the entry and the remedy.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "events.json"
    >>> sale = {"name": "sale", "from": "2026-11-27T08:00:00Z", "to": "2026-11-28T00:00:00Z", "factor": 2.5}
    >>> _ = path.write_text(json.dumps([sale]))
    >>> [(e.name, e.factor) for e in read_events(path)]
    [('sale', 2.5)]
    """
    try:
        entries = json.loads(file.read_text("utf-8"))
    except OSError as exc:
        raise InputRefused(f"{file}: {exc.strerror}") from exc
    except ValueError as exc:
        raise InputRefused(f"{file}: not JSON ({exc}); it holds a list of {{{', '.join(KEYS)}}}") from exc
    if not isinstance(entries, list):
        raise InputRefused(f"{file}: holds no list; write [{{{', '.join(KEYS)}}}, …]")
    return tuple(_event(f"{file}: event {n}", entry) for n, entry in enumerate(entries, start=1))


def _event(place: str, entry: object) -> Event:
    if not isinstance(entry, dict) or not set(KEYS) - {"factor"} <= set(entry):
        raise InputRefused(f"{place}: needs the keys {', '.join(KEYS)}")
    unknown = sorted(set(entry) - set(KEYS))
    if unknown:
        raise InputRefused(f"{place}: no key {unknown[0]!r}; there are {', '.join(KEYS)}")
    factor = entry.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise InputRefused(f"{place}: factor {factor!r} is no number")
    try:
        start, end = (datetime.fromisoformat(str(entry[key])) for key in ("from", "to"))
    except ValueError as exc:
        raise InputRefused(f"{place}: {exc}; write ISO 8601 with a zone, such as 2026-11-27T08:00:00Z") from exc
    try:
        return Event(str(entry["name"]), start, end, float(factor))
    except InputRefused as exc:
        raise InputRefused(f"{place}: {exc}") from exc

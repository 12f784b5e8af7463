"""Counters remembered across a restart of the recorder: small strings kept beside a topic's last tick."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.offsets import Counter

_FIELDS = {
    "at_s": np.float64,
    "value": np.int64,
    "epoch": np.int64,
    "seen": np.bool_,
    "boundary": np.int64,
    "boundary_value": np.int64,
    "bounded": np.bool_,
    "why": np.uint8,
}


def dump_counter(counter: Counter) -> str:
    """Return a counter as text; a column in which all partitions agree takes one number.

    Examples
    --------
    >>> same = load_counter(dump_counter(Counter.fresh(3, "id")))
    >>> same.seen.tolist(), same.topic_id
    ([False, False, False], 'id')
    """
    columns: dict[str, Any] = {name: _column(getattr(counter, name)) for name in _FIELDS}
    return json.dumps({"n": len(counter.value), "id": counter.topic_id, **columns}, separators=(",", ":"))


def load_counter(text: str) -> Counter:
    """Return the counter that :func:`dump_counter` wrote.

    Raises
    ------
    ValueError
        If the text is of another version; whoever restores starts afresh then, with a gap instead of a guess.
    """
    try:
        kept = json.loads(text)
        columns = {name: np.full(kept["n"], kept[name], dtype=kind) for name, kind in _FIELDS.items()}
        return Counter(**columns, topic_id=kept["id"])
    except (KeyError, TypeError) as exc:
        raise ValueError(f"not a kept counter: {text[:80]!r}") from exc


def _column(values: NDArray[Any]) -> Any:
    if len(values) and (values == values[0]).all():
        return values[0].item()
    return values.tolist()

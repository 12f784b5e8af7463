"""The shipped zero-shot model: what forecasts a stream that has no model of its own yet.

It lies in ``models/shipped`` of a checkout, or beside an installed package's data. ``models/train_zero_shot.py`` makes
it, and ``models/README.md`` says from what.
"""

from __future__ import annotations

from functools import lru_cache

from forecaster.errors import ArtefactRefused
from forecaster.methods.base import Method
from forecaster.registry import ModelRegistry
from forecaster.shipped_files import CHECKOUT, shipped_folder
from forecaster.topics import StreamId

STREAM = StreamId("shipped", "zero_shot")


@lru_cache(maxsize=1)
def shipped() -> tuple[Method | None, str | None]:
    """Return the shipped model, or None and the reason why it is not there; it is opened once a process.

    Examples
    --------
    >>> method, why = shipped()
    >>> (method is None) == (why is not None)
    True
    """
    registry = ModelRegistry(CHECKOUT / "models")
    try:
        if registry.current(STREAM) is not None:
            return registry.load(STREAM).method, None
        if (folder := shipped_folder("zero_shot")) is not None:
            return registry.open(folder).method, None
    except ArtefactRefused as refused:
        return None, str(refused)
    return None, "no shipped model is installed; a checkout has it in models/shipped"

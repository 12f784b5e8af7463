"""The shipped zero-shot model: what forecasts a stream that has no model of its own yet.

It lies in ``models/shipped`` of a checkout, or beside an installed package's data. ``models/train_zero_shot.py`` makes
it, and ``models/README.md`` says from what.
"""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from pathlib import Path

from forecaster.errors import ArtefactRefused
from forecaster.methods.base import Method
from forecaster.registry import ModelRegistry
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
    registry = ModelRegistry(Path(__file__).resolve().parent.parent / "models")
    try:
        if registry.current(STREAM) is not None:
            return registry.load(STREAM).method, None
        for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
            folder = Path(sysconfig.get_path("data", scheme)) / "share" / "headway" / "zero_shot"
            if folder.is_dir():
                return registry.open(folder).method, None
    except ArtefactRefused as refused:
        return None, str(refused)
    return None, "no shipped model is installed; a checkout has it in models/shipped"

"""What a process that serves for months does without, so that its memory is what its groups need."""

from __future__ import annotations

import ctypes
import importlib
import sys
from functools import cache
from typing import Any

_M_ARENA_MAX = -8  # of malloc.h


def keep_small() -> None:
    """Have scikit-learn come without pandas, and one heap for all threads; call it before either is used.

    Scikit-learn loads pandas wherever it is installed, which is 60 MB that no forecast uses; who imports pandas later
    gets it.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, 1)
    if "pandas" in sys.modules or "sklearn" in sys.modules:
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]  # "not installed", as Python itself notes it
    try:
        importlib.import_module("sklearn.utils")
    finally:
        del sys.modules["pandas"]


def give_back() -> None:
    """Return freed memory to the system; for after work that needed much.

    glibc keeps what was freed for the next who asks: between two forecasts serve would hold what its largest needed.
    """
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    """Return the C library if it is glibc, whose calls these are; else None."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "malloc_trim") else None

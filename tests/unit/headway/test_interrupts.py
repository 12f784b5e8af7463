from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headway.cli.interrupts import heeded


class Closing:
    """Something in whose destructor a signal comes: what is raised there is dropped."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def __del__(self) -> None:
        self.what()


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """As at a terminal; who runs tests side by side has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_that_python_drops_is_raised_all_the_same() -> None:
    with heeded(), pytest.raises(KeyboardInterrupt):
        Closing(lambda: signal.raise_signal(signal.SIGINT))
        threading.Event().wait(120)
        pytest.fail("nobody was told")


def test_other_faults_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    before = sys.unraisablehook
    with heeded():
        Closing(lambda: 1 / 0)
    assert told == [ZeroDivisionError] and sys.unraisablehook is before

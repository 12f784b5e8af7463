"""Ctrl-C that Python would drop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.01


@contextmanager
def heeded() -> Iterator[None]:
    """Raise Ctrl-C again where Python has dropped it.

    What is raised in a callback of the interpreter (an import that lets go of its lock, a destructor) is printed and
    forgotten: a service would serve on, a training would train on.
    """
    before = sys.unraisablehook

    def hook(dropped: UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        # raised in here it would be dropped again; a true signal also ends what the main thread waits for
        again = threading.Timer(AGAIN_S, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before

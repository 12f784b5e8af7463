"""Ends the process when a call overruns that is known to hang."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger("headway.consumer")

EXIT_CODE = 70
"""What the process ends with (EX_SOFTWARE)."""


def end_process(what: str, seconds: float) -> None:
    """Say what hung and end the process at once: no clean-up can be trusted to return."""
    log.critical("%s has not returned for %.1f s: ending the process, another worker takes over", what, seconds)
    os._exit(EXIT_CODE)


class Watchdog:
    """One thread that looks at one deadline of each thread that is guarded.

    Parameters
    ----------
    overrun
        What to do with (what, seconds); ends the process by default.
    """

    def __init__(self, overrun: Callable[[str, float], None] = end_process) -> None:
        self._overrun = overrun
        self._watched: dict[int, tuple[str, float, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headway-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    @contextmanager
    def guard(self, what: str, limit_s: float) -> Iterator[None]:
        """Watch the block: longer than ``limit_s`` seconds is an overrun. An inner guard replaces an outer one."""
        me = threading.get_ident()
        outer = self._watched.get(me)
        now = time.monotonic()
        self._watched[me] = (what, now, now + limit_s)
        try:
            yield
        finally:
            if outer is None:
                self._watched.pop(me, None)
            else:
                self._watched[me] = outer

    def _watch(self) -> None:
        while not self._stopped.wait(0.25):
            for thread, (what, began, end) in list(self._watched.items()):
                if time.monotonic() > end:
                    self._watched.pop(thread, None)
                    self._overrun(what, time.monotonic() - began)

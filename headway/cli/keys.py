"""Keys of a terminal, one at a time, without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raw_keys() -> Iterator[int | None]:
    """Provide standard input's descriptor with line editing off; None where it is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(descriptor: int | None, timeout_s: float) -> str | None:
    """Return the key that is pressed within the time, arrows as their escape sequence; None if there was none.

    ``q`` is returned when the terminal is gone.
    """
    ready, _, _ = select.select([] if descriptor is None else [descriptor], [], [], timeout_s)
    if descriptor is None or not ready:
        return None
    read = os.read(descriptor, 8)
    return read.decode("utf-8", "replace") if read else "q"

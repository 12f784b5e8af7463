"""The one way into the store: ticks that a store could not take are kept, in order, and written again later."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from forecaster.errors import SampleRejected, StoreRefused, StoreUnavailable
from forecaster.stores.base import SeriesStore, Tick

PENDING_TICKS = 36_000
"""So many ticks wait for a store that does not answer: an hour of 100 topics at 10 s steps. The oldest go first."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of some ticks.

    ``written`` are acknowledged by the store, ``pending`` wait for it, ``dropped`` found no more room to wait in,
    ``rejected`` say why the store will never take a tick (too old, or in the future).
    """

    written: int
    pending: int = 0
    dropped: int = 0
    rejected: tuple[str, ...] = ()
    why: str | None = None


class TickWriter:
    """Writes ticks to a store, and remembers those that it could not take.

    A tick may be written twice without harm (the store replaces cells by themselves), so after an unclear answer all
    of them are sent again.

    Parameters
    ----------
    store
        Where ticks go.
    room
        How many ticks may wait.
    """

    def __init__(self, store: SeriesStore, room: int = PENDING_TICKS) -> None:
        self._store = store
        self._waiting: deque[Tick] = deque(maxlen=room)

    @property
    def pending(self) -> int:
        """Number of ticks that wait for the store."""
        return len(self._waiting)

    def write(self, ticks: Sequence[Tick]) -> Written:
        """Write what waits, then these; never raises for a store that is away or full, but says so."""
        dropped = max(0, len(self._waiting) + len(ticks) - (self._waiting.maxlen or 0))
        self._waiting.extend(ticks)
        batch = list(self._waiting)
        rejected: list[str] = []
        written = 0
        try:
            try:
                self._store.append(batch)
                written = len(batch)
                self._waiting.clear()
            except SampleRejected:  # one of them spoils the batch: find out which, the others are fine
                while self._waiting:
                    try:
                        self._store.append([self._waiting[0]])
                        written += 1
                    except SampleRejected as exc:
                        rejected.append(str(exc))
                    self._waiting.popleft()
        except (StoreUnavailable, StoreRefused) as exc:
            return Written(written, self.pending, dropped, tuple(rejected), str(exc))
        return Written(written, 0, dropped, tuple(rejected))

"""What the two ways of keeping the newest days in Redis have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from forecaster.errors import StoreError
from forecaster.stores.base import Cells, SeriesKey, Tick


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one tick: ``error`` is None where it is safe."""

    error: StoreError | None = None


class HotPart(Protocol):
    """The newest days: written tick by tick, read by range; sealed days are somebody else's matter."""

    name: str

    def write(self, ticks: Sequence[Tick], now_s: float | None) -> list[Written]:
        """Write ticks and note them in the topic's meta hash, each at once; ``now_s`` None asks the server."""
        ...

    def read(self, key: SeriesKey, first_index: int, end_index: int) -> Cells:
        """Return what the hot part has of a range."""
        ...

    def days(self, keys: Sequence[SeriesKey], first_day: int, end_day: int) -> list[list[int]]:
        """Return, for each key, the days of which the hot part may have something, rising."""
        ...

    def keys_of(self, key: SeriesKey, day: int) -> list[str]:
        """Return the Redis keys that hold a day and nothing else: dropped when it is sealed."""
        ...

    def backfill(self, key: SeriesKey, cells: Cells) -> None:
        """Take history before it is sealed, where the hot part is a record of its own."""
        ...

    def prune(self, key: SeriesKey, first_day: int, end_day: int) -> set[int]:
        """Drop days that do not end by themselves; returns those that were there."""
        ...

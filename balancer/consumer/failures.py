"""What happens to a record that fails: how often and how soon it is tried again, and what then (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from balancer.consumer.errors import SettingsRefused


class GiveUp(StrEnum):
    """What to do with a record whose tries are used up."""

    DEAD_LETTER = "dead_letter"
    """Write it to the dead-letter topic, in the transaction that advances past it."""
    SKIP = "skip"
    """Advance past it; it is counted and logged."""
    BLOCK = "block"
    """Keep trying at the longest delay; its partition waits, all others flow."""
    STOP = "stop"
    """End the worker; its partitions go elsewhere."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """Tries, delays and the end of them.

    Raises
    ------
    SettingsRefused
        If a value is outside its bound.

    Examples
    --------
    >>> policy = FailurePolicy(tries=3, first_delay=timedelta(seconds=1), give_up=GiveUp.SKIP)
    >>> [policy.delay(n) for n in (1, 2, 3)]
    [datetime.timedelta(seconds=1), datetime.timedelta(seconds=2), None]
    """

    tries: int = 5
    """How often a record is run before it is given up, the first time included."""

    first_delay: timedelta = timedelta(milliseconds=200)
    """Before the second try; doubled for each further one."""

    longest_delay: timedelta = timedelta(seconds=30)
    """Delays grow no further than this."""

    give_up: GiveUp = GiveUp.BLOCK
    """What then. Nothing is lost by default."""

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise SettingsRefused(f"tries={self.tries} must be 1 or more")
        if not timedelta(0) <= self.first_delay <= self.longest_delay:
            raise SettingsRefused(f"first_delay={self.first_delay} must be within 0 and {self.longest_delay}")

    def delay(self, failed: int) -> timedelta | None:
        """Return how long to wait after the ``failed``-th failure; None when the tries are used up."""
        if failed >= self.tries and self.give_up is not GiveUp.BLOCK:
            return None
        doubled: timedelta = self.first_delay * 2.0 ** min(failed - 1, 30)
        return min(self.longest_delay, doubled)


def dead_letter(message: Any, failure: object) -> tuple[Any, Any, list[tuple[str, Any]]]:
    """Return key, value and headers of the record that tells of a record given up: where it was, and what failed."""
    source = f"{message.topic()}:{message.partition()}:{message.offset()}".encode()
    told = [("headway.source", source), ("headway.error", repr(failure)[:1000].encode())]
    return message.key(), message.value(), [*(message.headers() or []), *told]

"""A topic of keys in ``headway simulate``: what splitting changes, beside the same policy without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.keyed import KeyedRun, KeyedTopic, alone_p99_s, run_keyed
from balancer.splits import SplitPolicy
from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class KeyedSimulation:
    """What was split and merged, and the same members on the topic as it was."""

    run: KeyedRun

    capacity: float
    start: datetime
    end: datetime

    def _p99(self, trace: ArrivalTrace) -> float:
        return round(alone_p99_s(trace, self.capacity, self.start, self.end), 1)

    def document(self) -> dict[str, Any]:
        """Return ``splits``, ``refused``, and the p99 latency with a member alone on each partition, both ways."""
        return {
            "splits": [
                {"at": c.at, "kind": c.kind, "partition": c.partition, "lanes": c.lanes, "reason": c.reason}
                for c in self.run.changes
            ],
            "refused": list(self.run.refused),
            "p99_alone_unsplit_s": self._p99(self.run.unsplit),
            "p99_alone_split_s": self._p99(self.run.split),
        }

    def tell(self, say: Callable[[str], None]) -> None:
        """Say what was done, and what it was good for."""
        for change in self.run.changes:
            say(f"{change.at:%Y-%m-%d %H:%M} {change.kind}: {change.reason}")
        for why in self.run.refused[:5]:
            say(f"refused: {why}")
        before, after = self._p99(self.run.unsplit), self._p99(self.run.split)
        say(f"a member alone on each partition: p99 {before:g} s without splitting, {after:g} s with it")


def keyed(
    trace: ArrivalTrace,
    partitions: int | None,
    keys: int,
    exponent: float,
    drift: timedelta,
    seed: int,
    max_partitions: int | None,
    capacity: float,
    span: tuple[datetime, datetime],
) -> KeyedSimulation:
    """Spread a series over a topic of keys, with and without splitting.

    Raises
    ------
    HeadwayError
        If --partitions is missing, or the trace has several series.
    """
    if partitions is None:
        raise HeadwayError("--keys needs --partitions: how many the topic has before any split")
    topic = KeyedTopic(partitions, keys, exponent, drift, seed)
    policy = SplitPolicy(max_partitions=max_partitions or 4 * partitions)
    try:
        return KeyedSimulation(run_keyed(trace, topic, capacity, policy, *span), capacity, *span)
    except ValueError as error:
        raise HeadwayError(str(error)) from error

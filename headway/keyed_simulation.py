"""A topic of keys in ``headway simulate``: what splitting changes, beside the same policy without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from balancer.rivals.tuning import Wish
from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.compare import run_rival
from balancer.simulator.keyed import KeyedRun, KeyedTopic, run_keyed
from balancer.simulator.outcome import Outcome
from balancer.simulator.world import World
from balancer.splits import SplitPolicy
from headway.errors import HeadwayError


@dataclass(frozen=True, slots=True)
class KeyedSimulation:
    """What was split and merged, and the same members on the topic as it was."""

    run: KeyedRun

    def unsplit(self, world: World) -> Outcome:
        """Return what as many members as the static peak come to without splitting."""
        return run_rival("static_peak", replace(world, trace=self.run.unsplit), Wish())

    def with_lanes(self, world: World) -> Outcome:
        """Return what the same rule comes to with splitting."""
        return run_rival("static_peak", world, Wish())

    def document(self, world: World) -> dict[str, Any]:
        """Return ``splits``, ``refused``, and the figures of equal members without and with splitting."""
        return {
            "splits": [
                {"at": c.at, "kind": c.kind, "partition": c.partition, "lanes": c.lanes, "reason": c.reason}
                for c in self.run.changes
            ],
            "refused": list(self.run.refused),
            "static_peak_unsplit": self.unsplit(world).figures(),
            "static_peak_split": self.with_lanes(world).figures(),
        }

    def tell(self, world: World, say: Callable[[str], None]) -> None:
        """Say what was done, and what it was good for."""
        for change in self.run.changes:
            say(f"{change.at:%Y-%m-%d %H:%M} {change.kind}: {change.reason}")
        for why in self.run.refused[:5]:
            say(f"refused: {why}")
        before, after = self.unsplit(world), self.with_lanes(world)
        say(f"static peak: p99 {before.p99_s:g} s without splitting, {after.p99_s:g} s with it")


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
        return KeyedSimulation(run_keyed(trace, topic, capacity, policy, *span))
    except ValueError as error:
        raise HeadwayError(str(error)) from error

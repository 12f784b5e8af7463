"""What a worker measures of itself and says with each heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from balancer.leases.base import Heartbeat
from balancer.routing.sampling import KeySample


class Pulse:
    """Counters of the loop, read by the heartbeat; rates are over the time since the heartbeat before.

    Parameters
    ----------
    clock, cpu
        Wall seconds and CPU seconds of this process.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self.records = 0
        self.failures = 0
        self.skipped = 0
        self.commits = 0
        self.handling_s = 0.0
        self.commit_s = 0.0
        self._last = (clock(), cpu(), 0, 0.0, 0.0)
        self._since: float | None = None
        self._lately = (0.0, 0.0)
        self._capacity: float | None = None
        self._samples: dict[str, KeySample] = {}

    def saw(self, batch: Sequence[Any]) -> None:
        """Let two messages of a batch lend their keys to the sample; a poll costs next to nothing more."""
        for message in (batch[0], batch[len(batch) // 2]):
            if message.error() is None and (topic := message.topic()) is not None:
                sample = self._samples.get(topic) or self._samples.setdefault(topic, KeySample(20))
                sample.offer(message.key())

    def begins(self, now: float) -> None:
        """Handlers begin; until ``worked`` says how that went, a heartbeat counts the time so far as busy."""
        self._since = now

    def worked(self, records: int, seconds: float) -> None:
        """Count records handled, and the time that took."""
        self._since = None
        self.records += records
        self.handling_s += seconds

    def committed(self, seconds: float) -> None:
        """Count a commit."""
        self.commits += 1
        self.commit_s += seconds

    def failed(self) -> None:
        """Count a failed try."""
        self.failures += 1

    def gap(self, records: int) -> None:
        """Count records that were gone before they could be read."""
        self.skipped += records

    def beat(self, flags: Heartbeat) -> Heartbeat:
        """Return the heartbeat with rates since the one before.

        Capacity is records over seconds in handlers, of lately (halved with each heartbeat), less the share of time
        that commits take: there are as many of them under load. It is kept from when enough was done to tell; a
        handler that does not come back counts as well.
        """
        now, cpu = self._clock(), self._cpu()
        then, cpu_then, records_then, handling_then, commit_then = self._last
        passed = now - then
        if passed < 0.2:
            return flags
        since = self._since
        handling_s = self.handling_s + (now - since if since is not None else 0.0)
        records, handling, commit = self.records - records_then, handling_s - handling_then, self.commit_s - commit_then
        done, took = self._lately[0] / 2 + records, self._lately[1] / 2 + handling
        if handling > 0 and (done >= 10 or took >= 1):
            self._capacity = max(done, 0.5) / took * (1 - min(0.5, commit / passed))
        self._lately = (done, took)
        self._last = (now, cpu, self.records, handling_s, self.commit_s)
        return replace(
            flags,
            capacity=self._capacity,
            rate=records / passed,
            busy=min(1.0, (handling + commit) / passed),
            cpu=(cpu - cpu_then) / passed,
            keys={topic: keys for topic, sample in list(self._samples.items()) if (keys := sample.take())},
        )

"""What a worker measures of itself and says with each heartbeat."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from balancer.leases.base import Heartbeat


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
        self._capacity: float | None = None

    def worked(self, records: int, seconds: float) -> None:
        """Count records handled, and the time that took."""
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

        Capacity is records over busy seconds, kept from the last interval in which enough was done to tell.
        """
        now, cpu = self._clock(), self._cpu()
        then, cpu_then, records_then, handling_then, commit_then = self._last
        passed = now - then
        if passed < 0.2:
            return flags
        records = self.records - records_then
        busy = self.handling_s - handling_then + self.commit_s - commit_then
        if records >= 10 and busy > 0:
            self._capacity = records / busy
        self._last = (now, cpu, self.records, self.handling_s, self.commit_s)
        return replace(
            flags,
            capacity=self._capacity,
            rate=records / passed,
            busy=min(1.0, busy / passed),
            cpu=(cpu - cpu_then) / passed,
        )

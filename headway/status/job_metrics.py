"""What Prometheus reads of the schedule, as it stands at the moment of reading; a job that is gone leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class JobTimes:
    """When a job runs next, and when it last did its work on this instance; None: not known, or never."""

    job: str
    group: str | None
    next_run: datetime | None
    last_success: datetime | None


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """A collector over a function that says when jobs run.

    Examples
    --------
    >>> from datetime import UTC
    >>> times = JobTimes("seal", "orders", None, datetime(2026, 1, 5, tzinfo=UTC))
    >>> [(s.name, s.value) for f in JobMetrics(lambda: [times]).collect() for s in f.samples]
    [('headway_job_last_success_timestamp_seconds', 1767571200.0)]
    """

    read: Callable[[], Iterable[JobTimes]]

    def collect(self) -> Iterator[Metric]:
        """Yield one family after the other."""
        known = list(self.read())
        for name, help_ in (
            ("next_run", "When a job runs next, as Unix time."),
            ("last_success", "When a job last did its work on this instance, as Unix time."),
        ):
            family = GaugeMetricFamily(f"headway_job_{name}_timestamp_seconds", help_, labels=["job_name", "group"])
            for times in known:
                at: datetime | None = getattr(times, name)
                if at is not None:
                    family.add_metric([times.job, times.group or ""], at.timestamp())
            yield family

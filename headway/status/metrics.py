"""What Prometheus reads of Headway itself; labels are bounded: groups, jobs, routes, never keys or addresses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headway.status.group_metrics import GroupMetrics


class Metrics:
    """One registry for one application, so that two may live in one process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "headway_http_requests_total", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "headway_http_request_duration_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
            registry=registry,
        )
        self.job_runs = Counter(
            "headway_job_runs_total", "Runs of scheduled jobs.", ["job_name", "group", "result"], registry=registry
        )
        self.job_seconds = Gauge(
            "headway_job_last_duration_seconds",
            "Duration of a job's last run.",
            ["job_name", "group"],
            registry=registry,
        )
        self.decisions = Counter(
            "headway_decisions_total", "Decisions taken.", ["group", "mode", "outcome"], registry=registry
        )

    def text(self, groups: GroupMetrics) -> bytes:
        """Return everything in Prometheus' text format, the groups as they stand now."""
        return generate_latest(self.registry) + generate_latest(groups)

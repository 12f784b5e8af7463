"""The scheduled jobs: record, forecast, plan, act, retrain, seal, prune.

Missed runs are coalesced into one, no job runs twice at a time, and each keeps its last result, duration and next
run for API, metrics and page.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger
from cronsim import CronSim

from headway.errors import HeadwayError, one_line
from headway.status.board import Board
from headway.status.job_metrics import JobMetrics, JobTimes
from headway.status.logs import logger
from headway.status.metrics import Metrics
from headway.status.wire import Document, instant

NAMES = ("record", "forecast", "plan", "act", "retrain", "seal", "prune")
"""Passes that ``headway job run`` knows."""
_ORDER = (*NAMES, "groups")


THREADS = {"default": 4, "forecast": 2, "upkeep": 1, "retrain": 1}
"""Threads of each kind of work: what takes long (a training takes minutes, five hundred forecasts as well) must never
hold up a tick or a look at the offsets."""
_KINDS = {"forecast": "forecast", "seal": "upkeep", "prune": "upkeep", "retrain": "retrain"}

LEASE_TICKS = 2
"""A lead over a group outlives so many ticks."""

ELSEWHERE = "another instance leads, and does this"


@dataclass(frozen=True, slots=True)
class JobResult:
    """How one run ended."""

    job: str
    group: str | None
    ok: bool
    seconds: float
    started: datetime
    detail: str

    def to_document(self) -> Document:
        """Return the keys that ``headway job run --json`` prints."""
        return {
            "job": self.job,
            "group": self.group,
            "ok": self.ok,
            "seconds": round(self.seconds, 6),
            "started": instant(self.started),
            "detail": self.detail,
        }


@dataclass(slots=True)
class _Job:
    name: str
    group: str | None
    run: Callable[[], str]
    trigger: BaseTrigger | None
    lock: threading.Lock
    last: JobResult | None = None
    succeeded: datetime | None = None
    """When the last run ended that did its work here."""

    @property
    def id(self) -> str:
        return self.name if self.group is None else f"{self.name}:{self.group}"


class CronTrigger(BaseTrigger):
    """Fires by a cron expression on a zone's wall clock, clock changes included.

    APScheduler's own reads ``1`` as Tuesday where cron means Monday; this one means what cron means.
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression, self.zone = expression, ZoneInfo(timezone)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the first match after ``now``."""
        return next(CronSim(self.expression, now.astimezone(self.zone)), None)


class Jobs:
    """Runs functions on their triggers, in threads; each returns one line about what it did."""

    def __init__(
        self,
        board: Board,
        metrics: Metrics,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        may_run: Callable[[str, str | None], bool] = lambda job, group: True,
    ) -> None:
        self._board, self._metrics, self._clock, self._may_run = board, metrics, clock, may_run
        self._jobs: dict[str, _Job] = {}
        self._beside: list[tuple[str | None, Callable[[], None], Callable[[], None]]] = []
        self._scheduler: Any = BackgroundScheduler(
            timezone=UTC,
            executors={kind: ThreadPoolExecutor(threads) for kind, threads in THREADS.items()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._log = logger("jobs")
        metrics.registry.register(JobMetrics(self.times))

    def every(self, name: str, group: str | None, interval: timedelta, run: Callable[[], str]) -> None:
        """Run a job at once, and in intervals from midnight UTC, so that looks fall on the boundaries of steps."""
        began = datetime(1970, 1, 1, tzinfo=UTC)
        trigger = IntervalTrigger(seconds=interval.total_seconds(), start_date=began, timezone=UTC)
        self._add(_Job(name, group, run, trigger, threading.Lock()), at_once=True)

    def cron(self, name: str, group: str | None, expression: str, timezone: str, run: Callable[[], str]) -> None:
        """Run a job by a cron expression in a zone."""
        self._add(_Job(name, group, run, CronTrigger(expression, timezone), threading.Lock()), at_once=False)

    def on_demand(self, name: str, group: str | None, run: Callable[[], str]) -> None:
        """Know a job that runs only when somebody asks for it."""
        job = _Job(name, group, run, None, threading.Lock())
        self._jobs[job.id] = job

    def _add(self, job: _Job, at_once: bool) -> None:
        self._jobs[job.id] = job
        more = {"next_run_time": datetime.now(UTC)} if at_once else {}
        kind = _KINDS.get(job.name, "default")
        options = {"executor": kind, "id": job.id, "replace_existing": True, **more}
        self._scheduler.add_job(self._run, job.trigger, args=[job], **options)

    def beside(self, start: Callable[[], None], stop: Callable[[], None], group: str | None = None) -> None:
        """Have something begin and end with the schedule, or with its group, that runs on threads of its own."""
        self._beside.append((group, start, stop))
        if self._scheduler.running:
            start()

    def soon(self, name: str) -> None:
        """Run a scheduled job without waiting for its next turn."""
        if self._scheduler.running and name in self._jobs:
            self._scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def remove(self, group: str) -> None:
        """Take a group's jobs off the schedule."""
        for job in [j for j in self._jobs.values() if j.group == group]:
            if job.trigger is not None:
                self._scheduler.remove_job(job.id)
            del self._jobs[job.id]
        gone = [found for found in self._beside if found[0] == group]
        self._beside = [found for found in self._beside if found[0] != group]
        for _, _, stop in gone if self._scheduler.running else ():
            stop()

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()
        for _, start, _ in self._beside:
            start()

    def stop(self, patience: timedelta = timedelta(seconds=30)) -> tuple[str, ...]:
        """Start nothing new, let what runs end for a while; return what is still running then."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
            for _, _, stop in self._beside:
                stop()
        end = time.monotonic() + patience.total_seconds()
        for job in list(self._jobs.values()):
            if job.lock.acquire(timeout=max(end - time.monotonic(), 0.0)):
                job.lock.release()
        return tuple(sorted(job.id for job in list(self._jobs.values()) if job.lock.locked()))

    def run_now(self, name: str, group: str | None = None) -> JobResult:
        """Run one pass in this thread.

        Raises
        ------
        HeadwayError
            If there is no such job, or it is running already.
        """
        job = self._jobs.get(name if group is None else f"{name}:{group}")
        if job is None:
            known = ", ".join(sorted(self._jobs)) or "none"
            raise HeadwayError(f"no job {name!r}{f' of group {group!r}' if group else ''}; there are: {known}")
        result = self._run(job)
        if result is None:
            raise HeadwayError(f"job {job.id} is running already; it is never run twice at a time")
        return result

    def _run(self, job: _Job) -> JobResult | None:
        if not job.lock.acquire(blocking=False):
            return None
        started, clock = self._clock(), time.perf_counter()
        try:
            mine = self._may_run(job.name, job.group)
            detail, ok = job.run() if mine else ELSEWHERE, True
            if mine:
                job.succeeded = self._clock()
        except Exception as error:
            detail, ok = one_line(error), False
            self._log.warning("job failed", job=job.name, group=job.group, why=detail)
        finally:
            job.lock.release()
        result = JobResult(job.name, job.group, ok, time.perf_counter() - clock, started, detail)
        job.last = result
        self._metrics.job_runs.labels(job.name, job.group or "", "ok" if ok else "failed").inc()
        self._metrics.job_seconds.labels(job.name, job.group or "").set(result.seconds)
        self._board.tell("job", result.to_document())
        return result

    def times(self) -> Sequence[JobTimes]:
        """Return when each job runs next, and when it last did its work here."""
        return [JobTimes(j.name, j.group, self._upcoming(j), j.succeeded) for j in list(self._jobs.values())]

    def _upcoming(self, job: _Job) -> datetime | None:
        planned = self._scheduler.get_job(job.id) if self._scheduler.running else None
        return getattr(planned, "next_run_time", None)

    def status(self) -> Sequence[Document]:
        """Return each job's last result, duration and next run."""
        found = []
        for job in sorted(self._jobs.values(), key=lambda j: (j.group or "", _ORDER.index(j.name))):
            upcoming = self._upcoming(job)
            found.append(
                {
                    "job": job.name,
                    "group": job.group,
                    "running": job.lock.locked(),
                    "next_run": None if upcoming is None else instant(upcoming),
                    "last_success": None if job.succeeded is None else instant(job.succeeded),
                    "last": None if job.last is None else job.last.to_document(),
                }
            )
        return found

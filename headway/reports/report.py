"""Evidence before trust: what a group did, what Headway and rivals would have done, where it was wrong and why.

The last days of the recorded or imported history are played again: the real control tick over simulated members, with
knobs and forecasts made from nothing but what lay before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.policy import ScalingPolicy
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.outcome import Outcome
from balancer.simulator.world import World
from forecaster.series import ArrivalSeries
from forecaster.stores.base import SeriesKey, SeriesStore
from headway.errors import HeadwayError, NotReady
from headway.reports.simulation import POLICIES, Simulation, arrivals_of, ridge_forecaster, simulate
from headway.status.evidence import by_hour, by_lead, reliability, worst
from headway.status.expectations import LEVELS, STEPS, Expectation, Pairs, paired
from headway.status.wire import Document, instant

PLAYED = timedelta(days=14)
HISTORY = timedelta(days=8)
"""What must lie before the played days: forecasts learn a week's shape."""
LEAST_PLAYED = timedelta(days=1)
LEAST_KNOWN = 0.9
MOST_QUEUES = 64
"""Groups of more partitions are played as one queue."""
ORIGIN_MINUTES = 15
WORST_HOURS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Did:
    """What the group really did, as far as it was recorded.

    Parameters
    ----------
    changes
        (instant, members that worked) at each change.
    hours
        Member-hours.
    rescales
        Changes.
    late_share
        Records that arrived while the delay was beyond the SLO; None where delay was not recorded.
    """

    changes: tuple[tuple[datetime, int], ...]
    hours: float
    rescales: int
    late_share: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What is written: figures, paths and the evidence of the forecast."""

    group: str
    series: ArrivalSeries
    policy: ScalingPolicy
    result: Simulation
    pairs: Pairs | None
    did: Did | None
    why_not: str | None
    overloads: Sequence[Document]
    notes: tuple[str, ...] = ()
    windows: Sequence[tuple[datetime, datetime, str]] = field(default=())

    def document(self) -> Document:
        """Return the JSON document."""
        world, price = self.result.world, self.policy.price_per_member_hour
        policies = {}
        for name, outcome in self.result.outcomes.items():
            cost = None if price is None else round(outcome.hours * price, 4)
            policies[name] = {**outcome.figures(), "cost": cost}
        did = None
        if self.did is not None:
            did = {
                "hours": self.did.hours,
                "rescales": self.did.rescales,
                "late_share": self.did.late_share,
                "cost": None if price is None else round(self.did.hours * price, 4),
            }
        zone = self.series.grid.timezone
        forecast: Document = {"leads": [], "hours": [], "reliability": {}, "worst": []}
        if self.pairs is not None:
            forecast = {
                "leads": by_lead(self.pairs),
                "hours": by_hour(self.pairs, zone),
                "reliability": reliability(self.pairs),
                "worst": worst(self.pairs, self.windows),
            }
        return {
            "group": self.group,
            "topic": self.series.topic,
            "from": instant(world.start),
            "to": instant(world.end),
            "timezone": zone,
            "capacity_per_member": world.capacity,
            "start_time_s": world.start_s,
            "slo_s": world.slo_s,
            "price_per_member_hour": price,
            "records": round(float(world.arrivals.sum())),
            "did": did,
            "did_why": self.why_not,
            "policies": policies,
            "forecast": forecast,
            "wrong": list(self.overloads),
            "notes": list(self.notes),
        }


def make_report(
    group: str,
    series: ArrivalSeries,
    policy: ScalingPolicy,
    *,
    days: float | None = None,
    policies: Sequence[str] = POLICIES,
    did: Callable[[datetime, datetime], Did | str] = lambda start, end: "imported history holds no members",
    windows: Sequence[tuple[datetime, datetime, str]] = (),
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
    beside: Executor | None = None,
) -> Report:
    """Play the last days of a history again and judge them.

    Parameters
    ----------
    group
        Its name.
    series
        Recorded or imported arrivals.
    policy
        Of the group; its capacity must be known.
    days
        How many days to play; two weeks, or what the history allows, by default.
    policies
        Who is played.
    did
        (start, end) → what the group really did, or why that is not known.
    windows
        Pre-scaling windows and events, to explain hours by.
    say
        Told of progress.
    clock
        Seconds, for the time that each part took.
    beside
        Plays the rivals while Headway is played here; None: one after the other.

    Raises
    ------
    NotReady
        With the instant from which it will be possible.
    HeadwayError
        If the capacity is not known, or too much of the history is missing.
    """
    span = _span(series, days)
    capacity = policy.capacity_per_member
    if capacity is None:
        raise HeadwayError(
            f"the capacity of a member of {group} is not known yet; give --capacity R (records/s of one member), "
            f"or set groups.{group}.capacity_per_member"
        )
    notes: list[str] = []
    end = series.end.replace(second=0, microsecond=0)
    queues = len(series.partitions)
    owned = 1 < queues <= MOST_QUEUES and policy.cap_at_partitions
    if queues > MOST_QUEUES:
        notes.append(f"{queues} partitions were played as one queue that all members share")
    trace, gaps = arrivals_of(series if owned else series.total(), partitioned=owned)
    if gaps:
        values = "1 missing value was" if gaps == 1 else f"{gaps} missing values were"
        notes.append(f"{values} bridged in a straight line in what was played: a gap is not zero")
    lead = policy.expected_lead_time
    world = World(
        trace,
        end - span,
        end,
        capacity,
        lead.total_seconds(),
        policy.pause.total_seconds(),
        policy.slo.total_seconds(),
        policy.max_replicas,
    )
    kept: dict[tuple[int, int], ForecastBatch | None] = {}
    ridge = ridge_forecaster(world.minutes)

    def forecaster(first: int, until: int) -> ForecastBatch | None:
        if (first, until) not in kept:
            kept[first, until] = ridge(first, until)
        return kept[first, until]

    result = simulate(
        world,
        policies,
        clock=clock,
        say=say,
        late_target=policy.late_target,
        budget=policy.rescales_per_day,
        forecaster=forecaster,
        beside=beside,
    )
    batch = kept.get((world.first_minute, world.first_minute + world.run_minutes))
    pairs = None if batch is None else _pairs(world, batch, series)
    found = did(world.start, world.end)
    overloads = _overloads(world, result.outcomes["headway"], batch) if "headway" in result.outcomes else []
    done, why = (None, found) if isinstance(found, str) else (found, None)
    return Report(group, series, policy, result, pairs, done, why, overloads, tuple(notes), windows)


def _span(series: ArrivalSeries, days: float | None) -> timedelta:
    recorded = series.end - series.start
    usable = recorded - HISTORY
    if usable < LEAST_PLAYED:
        ready = series.start + HISTORY + LEAST_PLAYED
        raise NotReady(
            f"{recorded / timedelta(days=1):.1f} days of {series.topic} are recorded; a report plays at least one day "
            f"and needs eight before it: possible from {instant(ready)}, or load older history with headway import "
            f"or headway ingest"
        )
    if series.coverage < LEAST_KNOWN:
        raise HeadwayError(
            f"{series.coverage:.0%} of the history of {series.topic} is known; a report needs {LEAST_KNOWN:.0%}: "
            f"headway import fills gaps from a file"
        )
    wanted = PLAYED if days is None else timedelta(days=days)
    if days is not None and wanted > usable:
        raise HeadwayError(
            f"--days {days:g}: {usable / timedelta(days=1):.1f} days can be played, since eight must lie before them"
        )
    whole = min(wanted, usable)
    return whole - whole % timedelta(minutes=1)


def _pairs(world: World, batch: ForecastBatch, series: ArrivalSeries) -> Pairs:
    """Lay the forecasts of every quarter of an hour beside what was recorded."""
    kept = []
    for k in range(0, batch.total.shape[0], ORIGIN_MINUTES):
        total = np.full((STEPS, len(LEVELS)), np.nan, dtype=np.float32)
        steps = min(batch.total.shape[1], STEPS)
        for column, level in enumerate(LEVELS):
            if level in batch.levels:
                total[:steps, column] = batch.total[k, :steps, batch.levels.index(level)]
        origin = world.trace.start + timedelta(minutes=batch.first_minute + k)
        kept.append(Expectation(origin, float(batch.step_s), total))
    whole = series.total()
    rates = np.where(whole.known[0], whole.rates()[0], np.nan)
    return paired(kept, whole.first_index, whole.grid.step_s, rates)


def _overloads(world: World, ours: Outcome, batch: ForecastBatch | None) -> list[Document]:
    """Return the hours in which most arrived beyond what Headway's members serve, with why."""
    minutes = world.run_minutes
    at = np.arange(minutes)
    members = np.zeros(minutes, dtype=np.int64)
    before = ours.changes[0][1]
    for when, count in ours.changes:
        useful = (when - world.start).total_seconds() / 60 + (world.start_s / 60 if count > before else 0)
        members[at >= useful] = count
        before = count
    rates = world.arrivals / 60
    beyond = np.clip(rates - members * world.capacity, 0, None)
    hours = -(-minutes // 60)
    per_hour = np.bincount(at // 60, beyond, hours) * 60
    found: list[Document] = []
    for h in np.argsort(-per_hour)[:WORST_HOURS].tolist():
        if per_hour[h] <= 0:
            break
        inside = slice(h * 60, min((h + 1) * 60, minutes))
        peak = h * 60 + int(np.argmax(beyond[inside]))
        found.append(
            {
                "from": instant(world.start + timedelta(hours=h)),
                "records_beyond": round(float(per_hour[h])),
                "peak": round(float(rates[peak]), 3),
                "members": int(members[peak]),
                "cause": _why(world, batch, peak, rates, int(members[peak])),
            }
        )
    return found


def _why(world: World, batch: ForecastBatch | None, minute: int, rates: NDArray[np.float64], members: int) -> str:
    if members >= world.limit_replicas:
        return f"the limit of {world.limit_replicas} members was reached"
    lead_minutes = int(world.start_s // 60) + 1
    origin = minute - lead_minutes
    if batch is None or origin < 0:
        return "there was no forecast to plan by yet"
    step = min(int(lead_minutes * 60 // batch.step_s), batch.total.shape[1] - 1)
    level = batch.levels.index(0.95) if 0.95 in batch.levels else len(batch.levels) - 1
    said = float(batch.total[origin, step, level])
    if rates[minute] > said:
        return (
            f"{rates[minute]:,.3g} records/s came where q95, {lead_minutes} minutes before, was {said:,.3g}: "
            f"{_above(rates[minute] / max(said, 1e-9) - 1)} it"
        )
    return "the forecast held, but a minute's peak, a pause or the day's budget of changes left too little for a while"


def _above(share: float) -> str:
    return "barely above" if share < 0.005 else f"{100 * share:.0f} % above"


def did_of(
    points: Sequence[tuple[datetime, int]],
    end: datetime,
    late_share: float | None,
) -> Did | str:
    """Return what a group did from the members that were seen at each tick, oldest first; or why that is not known."""
    if len(points) < 2:
        return "no member was seen in this time: Headway did not watch the group then"
    changes = [points[0]]
    for at, count in points[1:]:
        if count != changes[-1][1]:
            changes.append((at, count))
    ends = [at for at, _ in changes[1:]] + [end]
    hours = sum(n * (b - a).total_seconds() for (a, n), b in zip(changes, ends, strict=True)) / 3600
    return Did(tuple(changes), hours, len(changes) - 1, late_share)


def late_share_of(
    store: SeriesStore,
    topics: Sequence[str],
    group: str,
    slo: timedelta,
    start: datetime,
    end: datetime,
) -> float | None:
    """Return the share of records that arrived in partitions whose delay was beyond the SLO; None without delays."""
    arrived_late = arrived_in_all = 0.0
    for topic in topics:
        if (meta := store.meta(topic)) is None:
            continue
        step_s = meta.step_s
        first, last = int(start.timestamp()) // step_s, int(end.timestamp()) // step_s
        delays = store.read(SeriesKey(topic, "latency_ms", group, step_s), first, last)
        arrived = store.read(SeriesKey(topic, "arrivals", step_s=step_s), first, last)
        rows = min(delays.partitions, arrived.partitions)
        both = delays.known[:rows] & arrived.known[:rows]
        late = both & (delays.values[:rows] > slo.total_seconds() * 1000)
        arrived_in_all += float(arrived.values[:rows][both].sum())
        arrived_late += float(arrived.values[:rows][late].sum())
    return arrived_late / arrived_in_all if arrived_in_all > 0 else None

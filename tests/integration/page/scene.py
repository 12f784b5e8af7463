"""A scene for the page: four groups at a Monday morning, one of them with many partitions, nothing left to chance."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import uvicorn

from balancer.group import GroupProtocol, GroupSnapshot, Member, PartitionState
from balancer.knobs import Knobs
from balancer.memory import PlannerMemory
from balancer.plan import Bound, BoundKind, Move, PlannedStep, Proposal, ScalingPlan
from balancer.plans.base import Decision, LeaderToken
from balancer.plans.memory import MemoryPlanStore
from balancer.replay import Inputs, abridged, again, forecast_bytes, forecast_name, inputs_bytes
from forecaster.forecast import Forecast, NoForecast, Rung
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.topics import GroupId, TopicPartition
from headway.api.server import create_app
from headway.application import Application
from headway.configuration.settings import Settings
from headway.operation.audit import Audit
from headway.operation.operations import Operations
from headway.reports.what_if import planned_again
from headway.status.board import Board, ReplicaPoint
from headway.status.metrics import Metrics

NOW = datetime(2026, 1, 5, 7, 40, tzinfo=UTC)
DAYS = 9
CAPACITY = 500.0
LEVELS = (0.1, 0.5, 0.9, 0.95, 0.99)
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", "--disable-quic", "--font-render-hinting=none", "--force-color-profile=srgb",
]  # fmt: skip

FRAMES = """async () => {
  const stack = document.getElementById('stack'), box = stack.getBoundingClientRect(), frames = [];
  let last = performance.now();
  for (let i = 0; i < 60; i++) {
    if (i % 6 === 0) document.querySelector(`[data-zoom="${i % 12 ? 'out' : 'in'}"]`).click();
    const clientX = box.left + 100 + i * 12;
    stack.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: box.top + 90, bubbles: true }));
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""
"""Zooms and moves the cursor for sixty frames, and says how long each took (milliseconds)."""


def daily(minute: np.ndarray) -> np.ndarray:
    """Return records/s at minutes since 1970: quiet nights, a steep morning, an evening hump, calmer weekends."""
    hour = minute / 60 % 24
    weekend = (minute // 1440 + 3) % 7 >= 5
    rate = 700 + 2300 / (1 + np.exp(-(hour - 8) * 2.2)) - 1900 / (1 + np.exp(-(hour - 19.5) * 1.1))
    rate += 900 * np.exp(-(((hour - 12.5) / 1.6) ** 2)) + 500 * np.exp(-(((hour - 20) / 1.2) ** 2))
    return rate * np.where(weekend, 0.6, 1.0)


def weights(partitions: int) -> np.ndarray:
    """Return shares of partitions: skewed, in an order of no meaning."""
    shares = 1 / (np.arange(partitions) + 2.5) ** 0.9
    order = np.random.default_rng(7).permutation(partitions)
    return (shares / shares.sum())[order]


def settings() -> Settings:
    """Return settings of the four groups."""
    common = {"capacity_per_member": CAPACITY, "start_time": "118s", "max_replicas": 24, "timezone": "Europe/Berlin"}
    return Settings(
        defaults={"price_per_member_hour": 0.12},
        groups={
            "orders": {"topics": ["orders"], **common},
            "billing": {"topics": ["billing"], **common},
            "fraud-check": {"topics": ["payments"], **common},
            "clickstream": {"topics": ["clicks"], "timezone": "Europe/Berlin"},
        },
    )


def _record(store: MemorySeriesStore, topic: str, group: str, scale: float, partitions: int, gap: bool) -> np.ndarray:
    rng = np.random.default_rng(len(topic))
    end = int(NOW.timestamp()) // 60
    minutes = np.arange(end - DAYS * 1440, end)
    noise = 1 + 0.025 * rng.standard_normal(minutes.size)
    total = daily(minutes) * scale * noise
    counts = np.floor(weights(partitions)[:, None] * total[None, :] * 60).astype(np.int64)
    known = np.ones(counts.shape, dtype=bool)
    if gap:
        known[:, -700:-640] = False
    store.backfill(SeriesKey(topic, "arrivals"), Cells(int(minutes[0]), np.where(known, counts, 0), known))
    lag = np.floor(counts * 0.02).astype(np.int64)
    store.backfill(SeriesKey(topic, "lag", group), Cells(int(minutes[0]), np.where(known, lag, 0), known))
    return counts


def forecast_at(topic: str, origin: datetime, scale: float, partitions: int) -> Forecast:
    """Return a day's forecast in five-minute steps, a little off in the middle of the day."""
    first = int(origin.timestamp()) // 60
    at = first + np.arange(288) * 5 + 2.5
    middle = daily(at) * scale * (1 + 0.04 * np.sin(at / 97))
    spread = 0.03 + 0.11 * np.sqrt(np.arange(1, 289) / 288)
    factors = np.array([-1.28, 0.0, 1.28, 1.64, 2.33])
    total = np.clip(middle[:, None] * (1 + spread[:, None] * factors), 0, None)
    rates = weights(partitions)[:, None, None] * total[None, :, :]
    numbers = tuple(range(partitions))
    return Forecast(topic, origin, timedelta(minutes=5), numbers, LEVELS, rates, total, "blend", Rung.OWN_MODEL)


def needed(rate: np.ndarray) -> np.ndarray:
    """Return members for a rate at four fifths of their capacity."""
    return np.maximum(np.ceil(rate / (0.8 * CAPACITY)), 1).astype(int)


def build(partitions: int = 24) -> Application:
    """Return the application of the scene; ``partitions`` are those of the group ``orders``."""
    store, plans, audit, board = (
        MemorySeriesStore(clock=lambda: NOW),
        MemoryPlanStore(clock=lambda: NOW),
        Audit(),
        Board(),
    )
    chosen = settings()
    for name in chosen.named_groups:
        board.add(name, chosen.group(name).topics)
    operations = Operations(plans, audit)
    app = Application(
        chosen, store, plans, board, operations, Metrics(), clock=lambda: NOW, audit_entries=audit.entries
    )
    _orders(app, partitions)
    _other(app, "billing", "billing", 0.4, 6)
    _other(app, "fraud-check", "payments", 0.7, 8, trouble=True)
    why = NoForecast("clicks", NOW, "4 of 48 hours are recorded", NOW + timedelta(hours=44))
    board.update("clickstream", "forecast", lambda v: v.forecasts.update(clicks=why), NOW)
    body = {
        "name": "winter sale",
        "group": "orders",
        "from": "2026-01-05T11:00:00Z",
        "to": "2026-01-05T13:00:00Z",
        "factor": 1.4,
    }
    operations.add_prescale(body, "mia", NOW - timedelta(hours=20))
    cron = {"group": "orders", "cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "2h", "at_least": 9}
    operations.add_prescale(cron, "mia", NOW - timedelta(hours=19))
    app.what_if = lambda group, changes, now: planned_again(
        app.view(group).snapshot, next(iter(app.view(group).forecasts.values())), chosen.policy(group), changes, now,
        rules=operations.rules(group), timezone="Europe/Berlin",
    )  # fmt: skip
    app.ready = True
    return app


def _fill(
    app: Application, name: str, topic: str, scale: float, partitions: int, gap: bool
) -> tuple[np.ndarray, Forecast]:
    counts = _record(app.store, topic, name, scale, partitions, gap)
    for k in range(36, 0, -1):
        app.expectations.note(forecast_at(topic, NOW - timedelta(minutes=40 * k), scale, partitions))
    return counts, forecast_at(topic, NOW, scale, partitions)


def _snapshot(name: str, topic: str, counts: np.ndarray, requested: int, working: int, scale: float) -> GroupSnapshot:
    rates = counts[:, -1] / 60
    order = np.argsort(-rates)
    owned: list[list[TopicPartition]] = [[] for _ in range(requested)]
    loads = np.zeros(working)
    for p in order.tolist():
        member = int(np.argmin(loads))
        loads[member] += rates[p]
        owned[member].append(TopicPartition(topic, p))
    members = tuple(Member(f"{name}-{i}", tuple(sorted(tps)), ready=i < working) for i, tps in enumerate(owned))
    states = {
        TopicPartition(topic, p): PartitionState(int(rates[p] * 1.2), float(rates[p]), float(rates[p]))
        for p in range(len(rates))
    }
    return GroupSnapshot(GroupId(name), NOW, requested, members, states, GroupProtocol.PLANNED, 41)


def _orders(app: Application, partitions: int) -> None:
    name = topic = "orders"
    counts, forecast = _fill(app, name, topic, 1.0, partitions, gap=True)
    rates = counts.sum(axis=0)[-1440:] / 60
    ahead = needed(np.concatenate([rates[8:], np.full(8, rates[-1] * 1.5)]))
    members = np.array([ahead[max(i - 30, 0) : i + 8].max() for i in range(1440)])
    start = NOW - timedelta(minutes=1440)
    view = app.board.get(name)
    for i in range(1440):
        at = start + timedelta(minutes=i)
        working = members[max(i - 2, 0)] if i > 1 else members[i]
        unseen = 740 <= i < 800  # as the arrivals and the lag
        seen = (None, None) if unseen else (int(members[i]), int(min(working, members[i])))
        view.replicas.append(ReplicaPoint(at, *seen))
        view.latencies.append((at, float(0.4 + 3.0 * max(rates[i] / (working * CAPACITY) - 0.7, 0) ** 2 * 40)))
    requested = int(members[-1])
    token = app.plans.lead(GroupId(name), "scene", timedelta(minutes=5))
    for i in np.flatnonzero(np.diff(members)) + 1:
        at, count, before = start + timedelta(minutes=int(i)), int(members[i]), int(members[i - 1])
        when, rate = at + timedelta(minutes=68), float(rates[min(i + 8, 1439)])  # local time
        reason = f"{when:%H:%M} needs {rate / 400:.1f} (q95, {rate:,.0f} records/s), start takes 118 s"
        reasons = (reason, "within the day's budget of 24 changes")
        made = ScalingPlan(GroupId(name), at, (PlannedStep(at, count, float(rates[i])),), Bound(), reasons)
        inputs = {"replicas": before, "working": before, "lag": 812, "arrival_rate": float(rates[i]), "knobs": {}}
        acted = {"replicas": count, "previous": before, "state": "done", "detail": ""}
        app.plans.record(Decision(f"orders@{at.isoformat()}", GroupId(name), at, "act", made, inputs, acted), token)
    snapshot = _snapshot(name, topic, counts, requested, requested - 1, 1.0)
    _decided(app, snapshot, forecast, token)
    forecasts = needed(forecast.total[:, 3])
    steps = [
        PlannedStep(NOW, requested, float(rates[-1]), None, (Move(TopicPartition(topic, 3), "orders-0", "orders-2"),))
    ]
    for k in range(6, 288, 6):
        count = int(forecasts[k : k + 12].max())
        if count != steps[-1].replicas:
            steps.append(
                PlannedStep(NOW + timedelta(minutes=5 * k - 5), count, float(forecast.total[k : k + 12, 3].max()))
            )
    reasons = (
        f"{len(steps)} steps ahead: 09:00 needs {int(forecasts[15])} (q95)",
        "changes are spaced by the budget of 24 a day",
    )
    bound = Bound(BoundKind.PARTITION, "orders:7", NOW + timedelta(hours=3))
    proposal = Proposal(
        "split",
        "orders:7",
        "Partition 7 carries a third of the peak: headway split --topic orders --partition 7 --lanes 2",
    )
    plan = ScalingPlan(GroupId(name), NOW, tuple(steps), bound, reasons, 6, proposals=(proposal,))

    def fill(v: object) -> None:
        view.snapshot, view.plan, view.plan_version, view.forecasts[topic] = snapshot, plan, 7, forecast
        view.mode = "act"
        view.gates[topic] = (True, ("error 6.1 % over the last day, the best naive had 11.8 %",))
        view.quality[topic] = {"wape": 0.061, "coverage": 0.957}
        view.capacity_per_member = CAPACITY
        view.acting_until = NOW + timedelta(seconds=60)
        for kind, age in (("arrivals", 12), ("forecast", 41), ("snapshot", 3)):
            view.at[kind] = NOW - timedelta(seconds=age)

    app.board.update(name, "plan", fill, NOW)
    moved = [(m, tp) for m in snapshot.members[:2] for tp in m.partitions[:1]]
    for (m, tp), (other, _) in pairwise([*moved, moved[0]]):
        app.timeline._moves[name].append(
            {"at": "2026-01-05T07:32:00Z", "partition": str(tp), "source": other.id, "target": m.id}
        )


def _decided(app: Application, snapshot: GroupSnapshot, forecast: Forecast, token: LeaderToken) -> None:
    """Record a decision as a tick does, with all its inputs, so that it can be computed again."""
    group, at, keep, knobs = GroupId("orders"), NOW, timedelta(days=1), Knobs()
    used = abridged(forecast, knobs.near_level)
    policy = app.settings.policy("orders")
    inputs = Inputs(snapshot, used, policy, at, knobs, PlannerMemory(), (), "Europe/Berlin")
    body, id = forecast_bytes(used, knobs.near_level), f"orders@{at.isoformat()}"
    app.plans.attach(group, forecast_name(body), body, keep, token)
    app.plans.attach(group, id, inputs_bytes(inputs, forecast_name(body)), keep, token)
    lag, rate = snapshot.lag[0], snapshot.arrival_rate[0]
    summary = {"replicas": 6, "working": 5, "lag": lag, "arrival_rate": rate, "knobs": knobs.to_json()}
    made = again(inputs)
    acted = {"replicas": made.replicas, "previous": 6, "state": "effective", "detail": "after 41 s each of them works"}
    app.plans.record(Decision(id, group, at, "act", made, summary, acted), token)


def _other(app: Application, name: str, topic: str, scale: float, partitions: int, trouble: bool = False) -> None:
    counts, forecast = _fill(app, name, topic, scale, partitions, gap=False)
    count = int(needed(counts.sum(axis=0)[-1:] / 60)[0]) + 1
    steps = (PlannedStep(NOW, count, 900.0), PlannedStep(NOW + timedelta(minutes=50), count + 2, 1500.0))
    plan = ScalingPlan(GroupId(name), NOW, steps, Bound(), ("the band stays under what the members take",), 2)
    snapshot = _snapshot(name, topic, counts, count, count, scale)
    view = app.board.get(name)
    for i in range(1440, 0, -10):
        view.replicas.append(ReplicaPoint(NOW - timedelta(minutes=i), count, count))
        view.latencies.append((NOW - timedelta(minutes=i), 0.8))

    def fill(v: object) -> None:
        view.snapshot, view.plan, view.forecasts[topic], view.mode = snapshot, plan, forecast, "recommend"
        view.capacity_per_member, view.quality[topic] = CAPACITY, {"wape": 0.09, "coverage": 0.94}
        view.gates[topic] = (True, ("error 9.0 % over the last day, the best naive had 12.4 %",))
        view.at["arrivals"] = view.at["snapshot"] = NOW - timedelta(seconds=8)

    app.board.update(name, "plan", fill, NOW)
    if trouble:
        why = "3 of 8 partitions were not read: kafka-2:9092 does not answer; members stay as they are until it does"
        app.board.problem(name, "arrivals", why)


@contextmanager
def served(app: Application):
    """Provide the address of a server over the application."""
    config = uvicorn.Config(create_app(app), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.02)
        assert thread.is_alive(), "the server ended"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        for reader in list(config.app.state.listeners):
            server.servers[0].get_loop().call_soon_threadsafe(reader.put, None)
        server.should_exit = True
        thread.join(10)

"""What the recorded past would have cost: as a simulation of it says, refused where nothing can be said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.knobs import Knobs
from balancer.policy import ScalingPolicy
from balancer.rivals.tuning import Wish
from balancer.simulator.compare import run_rival
from balancer.simulator.ticking import run_headway
from balancer.simulator.world import World
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid
from headway.errors import NotReady
from headway.reports.past_cost import past_cost
from headway.reports.simulation import POLICIES, arrivals_of, ridge_forecaster

T0 = datetime(2026, 1, 5, tzinfo=UTC)
POLICY = ScalingPolicy(
    capacity_per_member=10.0,
    lead_time=timedelta(seconds=120),
    max_replicas=16,
    cap_at_partitions=False,
    price_per_member_hour=0.5,
)
KNOBS = Knobs(near_level=0.9, price_h=0.5, dwell=timedelta(minutes=10), floor=0.6, correction=0.05)


def recorded(days: int) -> ArrivalSeries:
    minute = np.arange(days * 1440)
    mean = 60 * (60 + 40 * np.sin(minute / 1440 * 2 * np.pi))
    counts = np.random.default_rng(3).poisson(mean)[None].astype(float)
    return ArrivalSeries(
        "orders", TimeGrid(60, "UTC"), int(T0.timestamp()) // 60, (0,), counts, np.ones(counts.shape, bool)
    )


def test_it_says_what_the_exact_simulation_says() -> None:
    history = recorded(6)
    told = past_cost(history, POLICY, KNOBS, T0 + timedelta(days=5))
    assert (told["from"], told["to"]) == (T0 + timedelta(days=5), T0 + timedelta(days=6))
    trace, _ = arrivals_of(history, partitioned=False)
    world = World(trace, told["from"], told["to"], 10.0)
    batch = ridge_forecaster(world.minutes)(world.first_minute, world.first_minute + world.run_minutes)
    exact = run_headway(world, batch, KNOBS)
    ours = told["policies"]["headway"]
    assert ours["hours"] == pytest.approx(exact.hours, rel=0.03)
    assert ours["late_share"] == pytest.approx(exact.late_share, abs=1e-3)
    assert ours["cost"] == pytest.approx(0.5 * ours["hours"])
    assert set(told["policies"]) == set(POLICIES)
    for name in ("cron_last_week", "static_peak"):  # the others have their best settings for the day itself
        rival, same = told["policies"][name], run_rival(name, world, Wish(late_share=POLICY.late_target))
        assert rival["hours"] == pytest.approx(same.hours, rel=0.03)
        assert rival["late_share"] == pytest.approx(same.late_share, abs=1e-3)
    for rival in told["policies"].values():
        assert rival["cost"] == pytest.approx(0.5 * rival["hours"])
    assert told["policies"]["perfect"]["hours"] <= ours["hours"] <= told["policies"]["static_peak"]["hours"]


def test_without_enough_history_it_is_what_is_seen_that_plans() -> None:
    told = past_cost(recorded(2), POLICY, KNOBS)
    assert told["days"] == 1.0
    assert any("too little history" in note for note in told["notes"])


@pytest.mark.parametrize(
    ("policy", "start", "word"),
    [
        (replace(POLICY, capacity_per_member=None), None, "capacity"),
        (POLICY, T0 + timedelta(days=2), "no whole day"),
    ],
)
def test_what_cannot_be_said_is_refused(policy: ScalingPolicy, start: datetime | None, word: str) -> None:
    with pytest.raises(NotReady, match=word):
        past_cost(recorded(2), policy, KNOBS, start)

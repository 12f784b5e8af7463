"""Drift and gate over a score log: plain sums, hysteresis, dwell, and the same standing after a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from forecaster.drift import DriftPolicy, ScoreLog, drift
from forecaster.forecast import Rung
from forecaster.gate import GatePolicy, verdict
from forecaster.timegrid import TimeGrid

NOW = datetime(2026, 1, 20, tzinfo=UTC)
GRID = TimeGrid(3600)
HOURS = 24 * 9
HOUR = timedelta(hours=1)


def log(
    error: float | np.ndarray = 10.0,
    naive: float | np.ndarray = 20.0,
    missed: float | np.ndarray = 0.05,
    bias: float = 0.0,
    points: float | np.ndarray = 4.0,
    week_from: int = 0,
) -> ScoreLog:
    one = np.ones(HOURS)
    error, points = error * one, points * one
    scored = points > 0
    weeks = scored & (np.arange(HOURS) >= week_from)
    return ScoreLog(
        GRID,
        GRID.index_of(NOW) - HOURS,
        points,
        100.0 * scored,
        error * (0.5 + bias / 2) * scored,
        error * (0.5 - bias / 2) * scored,
        {0.95: missed * points},
        {"yesterday": naive * one * scored, "last_week": 50.0 * weeks, "last_value": 60.0 * scored},
        {"yesterday": scored, "last_week": weeks, "last_value": scored},
    )


def last(hours: int, before: float, after: float) -> np.ndarray:
    return np.where(np.arange(HOURS) < HOURS - hours, before, after)


def test_figures_of_a_window_are_ratios_of_sums() -> None:
    health = log(error=np.arange(HOURS, dtype=float), bias=0.5).window(NOW - 2 * HOUR, NOW)
    assert health.points == 8
    assert health.wape == pytest.approx((214 + 215) / 200)
    assert health.bias == pytest.approx(0.5 * (214 + 215) / 200)
    assert health.coverage[0.95] == pytest.approx(0.95)
    assert health.best_naive == ("yesterday", 0.2)
    assert health.skill == pytest.approx((214 + 215) / 200 / 0.2)
    nothing = log().window(NOW + HOUR, NOW + 2 * HOUR)
    assert (nothing.points, nothing.wape, nothing.skill, nothing.coverage[0.95]) == (0, None, None, None)


def test_a_fit_forecast_may_act_and_says_why() -> None:
    word = verdict(log(), NOW)
    assert (word.may_act, word.rung) == (True, Rung.OWN_MODEL)
    assert word.reasons == ("WAPE 0.100, the best naive's is 0.200",)


def test_what_was_never_scored_does_not_act() -> None:
    word = verdict(log(points=last(5, 0, 4)), NOW)
    assert (word.may_act, word.rung) == (False, Rung.OWN_MODEL)
    assert word.reasons == ("20 of 24 points are scored; a forecast acts once it has been",)


def test_worse_than_naive_closes_and_serves_the_best_naive_rung() -> None:
    word = verdict(log(error=last(30, 10, 40)), NOW)
    assert (word.may_act, word.rung) == (False, Rung.YESTERDAY)
    assert "is worse than the yesterday's 0.200" in word.reasons[0]
    assert word.reasons[0].startswith("closed since 2026-01-1")


def test_short_coverage_closes_however_good_the_median() -> None:
    word = verdict(log(missed=0.2), NOW)
    assert not word.may_act
    assert "only 0.800 of what came lay below the 0.95 quantile" in word.reasons[0]


def test_a_bad_hour_does_not_close_a_day() -> None:
    assert verdict(log(error=last(1, 10, 60)), NOW).may_act


def test_it_opens_after_a_dwell_with_hysteresis() -> None:
    bad = np.where((np.arange(HOURS) >= HOURS - 80) & (np.arange(HOURS) < HOURS - 40), 60.0, 10.0)
    history = log(error=bad)
    states = [verdict(history, NOW - k * HOUR) for k in range(90, -1, -1)]
    acts = [s.may_act for s in states]
    closed = acts.index(False)
    opened = closed + acts[closed:].index(True)
    assert all(acts[opened:])
    assert not any(acts[closed:opened])
    waiting = [s for s in states[closed:opened] if len(s.reasons) == 2]
    assert 5 <= len(waiting) <= 6
    assert "opens after 6 h of that" in waiting[0].reasons[1]
    # between the two thresholds nothing moves, in either direction
    middling = verdict(log(error=last(30, 10, 21)), NOW)
    assert middling.may_act
    still = verdict(log(error=np.where(np.arange(HOURS) < HOURS - 60, 40.0, 21.5)), NOW)
    assert not still.may_act


def test_where_the_last_value_is_nearly_right_a_percent_more_closes_nothing() -> None:
    """A smooth stream: 3.2 % from one step to the next, and a model of the day that misses 4.6 %."""
    assert verdict(log(error=4.6, naive=3.2), NOW).may_act
    closed = verdict(log(error=5.3, naive=3.2), NOW)
    assert closed.reasons[0].endswith("WAPE 0.053 is worse than the yesterday's 0.032")
    # once closed, it takes more to open: not the margin that would not have closed it
    after_a_fault = np.where(np.arange(HOURS) < HOURS - 60, 40.0, 1.0)
    assert not verdict(log(error=4.6 * np.maximum(after_a_fault, 1.0), naive=3.2), NOW).may_act
    assert verdict(log(error=4.1 * np.maximum(after_a_fault, 1.0), naive=3.2), NOW).may_act


def test_in_its_first_week_a_stream_has_no_last_week_to_be_worse_than() -> None:
    """What the week before could not say is no error of zero, which every forecast would be worse than."""
    young = log(week_from=HOURS)
    word = verdict(young, NOW)
    assert word.may_act and word.health.naive == {"yesterday": 0.2, "last_week": None, "last_value": 0.6}
    # half of the day is enough to be compared with, and is measured where it was there
    for hours, expected in ((11, None), (12, 0.5), (24, 0.5)):
        assert log(week_from=HOURS - hours).window(NOW - 24 * HOUR, NOW).naive["last_week"] == expected
    nothing = log(naive=0.0, week_from=HOURS, points=last(5, 0, 4))
    assert nothing.window(NOW - 48 * HOUR, NOW - 24 * HOUR).naive["yesterday"] is None


def test_nothing_after_now_is_looked_at() -> None:
    spoilt = log(error=last(40, 10, 90))
    assert verdict(spoilt, NOW - 40 * HOUR).may_act
    assert drift(spoilt, NOW - 40 * HOUR) is None


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (log(), None),
        (log(error=last(24, 10, 19)), "error rose from 0.50 to 0.95 of the best naive's over 1 d"),
        (log(error=last(24, 10, 25), naive=last(24, 20, 50)), None),
        (log(error=60, bias=1.0), "over-forecast by 60% over 1 d"),
        (log(error=60, bias=-1.0), "under-forecast by 60% over 1 d"),
        (log(missed=last(24, 0.05, 0.15)), "coverage of 0.95 fell to 0.850 over 1 d"),
        (log(error=last(24, 10, 90), points=last(24, 4, 1)), None),
        (log(error=last(24, 1, 2)), None),
    ],
    ids=["fit", "worse", "a hard day for all", "over", "under", "short", "too few points", "still far better"],
)
def test_drift_is_named_and_a_hard_day_is_not_drift(scores: ScoreLog, says: str | None) -> None:
    assert drift(scores, NOW) == says


@pytest.mark.parametrize(
    "bad",
    [
        {"window": timedelta(0)},
        {"open_at": 2.0},
        {"open_shortfall": 0.2},
        {"open_margin": 0.1},
        {"min_points": 0},
        {"dwell": -HOUR},
    ],
)
def test_impossible_gate_policies_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must"):
        GatePolicy(**bad)


@pytest.mark.parametrize("bad", [{"recent": timedelta(0)}, {"skill_ratio": 1.0}, {"max_bias": 0}, {"min_points": 0}])
def test_impossible_drift_policies_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must"):
        DriftPolicy(**bad)

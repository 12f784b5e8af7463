from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.routing import protocol
from balancer.routing.table import Kept, SlotTable
from balancer.slot_loads import by_slots
from forecaster.forecast import Forecast, Rung

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
TABLE = protocol.adopt("orders", "id-1", 2, "murmur2", ["billing"])
HALF = TABLE.slots_of(0)[: len(TABLE.slots_of(0)) // 2]
SPLIT = replace(TABLE, epoch=5, moved=dict.fromkeys(HALF, 2))


def told(*rows: float) -> Forecast:
    rates = np.array(rows)[:, None, None] * np.array([1.0, 2.0])
    rates = np.repeat(rates, 3, axis=1)
    step = timedelta(minutes=15)
    return Forecast(
        "orders", NOW, step, tuple(range(len(rows))), (0.5, 0.9), rates, rates.sum(axis=0), "t", Rung.OWN_MODEL
    )


def laid(forecast: Forecast, table: SlotTable, shares: np.ndarray | None = None) -> dict[int, float]:
    found = by_slots(forecast, table, shares)
    assert found.rates.sum(axis=0) == pytest.approx(forecast.rates.sum(axis=0))  # nothing is added, nothing gets lost
    return {p: float(found.rates[i, 0, 1]) for i, p in enumerate(found.partitions)}


def test_a_topic_without_lanes_stays_as_it_is() -> None:
    forecast = told(100.0, 20.0)
    assert by_slots(forecast, TABLE) is forecast
    assert by_slots(forecast, replace(SPLIT, topic="other")) is forecast


def test_a_new_lane_takes_its_part_of_its_parent_before_it_has_a_past() -> None:
    assert laid(told(100.0, 20.0), SPLIT) == pytest.approx({0: 100.0, 1: 40.0, 2: 100.0})
    # a lane's own row, of few steps and not this peak's, changes the sum alone
    assert laid(told(90.0, 20.0, 10.0), SPLIT) == pytest.approx({0: 100.0, 1: 40.0, 2: 100.0})


def test_lanes_are_weighed_by_what_was_sampled() -> None:
    shares = np.zeros(TABLE.slots)
    shares[list(HALF[:4])] = 0.1  # four slots of the lane, and one that stayed
    shares[TABLE.slots_of(0)[-1]] = 0.1
    found = laid(told(100.0, 20.0), SPLIT, shares)
    assert found[2] > 3 * found[0]  # four to one, a tenth of it spread alike


def test_what_a_lane_took_yesterday_is_its_parent_s_after_the_merge() -> None:
    merged = replace(TABLE, epoch=9, kept=(Kept(HALF, 0, 50, 2, 0), Kept(HALF, 2, 70, 0, 50)))
    assert laid(told(25.0, 20.0, 75.0), merged) == pytest.approx({0: 200.0, 1: 40.0, 2: 0.0})
    # forgotten by the table: shared as busy as the partitions are
    assert laid(told(25.0, 75.0, 100.0), TABLE) == pytest.approx({0: 100.0, 1: 300.0, 2: 0.0})


def test_lanes_of_a_partition_that_the_forecast_leaves_out_stay_as_they_are() -> None:
    whole = told(90.0, 20.0, 10.0)
    part = replace(whole, partitions=(1, 2), rates=whole.rates[1:])
    found = by_slots(part, SPLIT)
    assert found.partitions == (1, 2) and found.rates.tolist() == part.rates.tolist()

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from headway.status.evidence import by_lead, worst
from headway.status.expectations import LEVELS, Pairs

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
NAN = float("nan")


def pairs(expected: list[float], came: list[float], week: list[float]) -> Pairs:
    """Hourly forecasts of one step each, the same at all levels."""
    origins = START.timestamp() + 3600.0 * np.arange(len(came))
    said = np.repeat(np.array(expected)[:, None, None], len(LEVELS), axis=2)
    column = np.array(week)[:, None]
    return Pairs(origins, np.full(len(came), 3600.0), said, np.array(came)[:, None], {"last week": column})


@pytest.mark.parametrize(
    ("week", "cause"),
    [
        (NAN, "100 % more than expected"),  # no week before: nothing to be unlike
        (0.0, "100 % more than expected, and unlike the week before: if it comes again, name it with headway prescale"),
        (
            50.0,
            "100 % more than expected, and unlike the week before: if it comes again, name it with headway prescale",
        ),
        (90.0, "100 % more than expected; the week before was closer"),
    ],
)
def test_the_worst_hour_says_what_was_different_and_an_unknown_week_is_no_week_of_zero(week: float, cause: str) -> None:
    (only,) = worst(pairs([100.0, 50.0], [100.0, 100.0], [100.0, week]))
    assert only == {"from": "2026-01-05T09:00:00Z", "came": 100.0, "expected": 50.0, "wape": 0.5, "cause": cause}


def test_a_window_is_named_before_anything_else() -> None:
    window = (START, START + timedelta(hours=1), "sale")
    (only,) = worst(pairs([50.0], [100.0], [0.0]), [window])
    assert only["cause"] == "100 % more than expected, within sale"


def test_an_hour_whose_sum_was_right_erred_within_itself() -> None:
    """Two percent more than expected is no event that anybody should name."""
    (only,) = worst(pairs([100.0], [101.0], [0.0]))
    assert only["cause"] == "as many as expected over the hour, unevenly within it"


def test_naive_methods_are_scored_where_they_had_anything_to_repeat() -> None:
    (row,) = by_lead(pairs([10.0, 10.0, 10.0], [10.0, 20.0, NAN], [NAN, 15.0, 10.0]))
    assert row["points"] == 2 and row["wape"] == pytest.approx(1 / 3) and row["naive_wape"] == {"last week": 0.25}
    (row,) = by_lead(pairs([10.0], [10.0], [NAN]))
    assert row["naive_wape"] == {"last week": None}

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.configuration.durations import format_duration, parse_duration


@given(st.integers(0, 10**8), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("d", 86400)]))
def test_number_and_unit(n, unit):
    if n * unit[1] <= 10**10:
        assert parse_duration(f"{n}{unit[0]}") == timedelta(seconds=n * unit[1])


@pytest.mark.parametrize(
    "text", ["", " ", "5", "5x", "-5s", "P", "PT", "s5", "5 parsecs", "nan", "1e5s", "99999999999w"]
)
def test_refused(text):
    with pytest.raises(ValueError, match=r"no unit|not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("1.5h", 5400), ("2h 5m", 7500), ("P1DT1H", 90000), ("PT0.5S", 0.5), ("P2W", 1209600)],
)
def test_d22_units_are_kept(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=300)))
def test_formatted_reads_back_within_its_second_unit(duration):
    back = parse_duration(format_duration(duration))
    assert abs(back - duration) <= max(timedelta(seconds=1), duration / 20 + timedelta(seconds=1))

"""Pre-scaling windows, events and overrides: neutral outside, exact to the second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import PolicyRefused
from balancer.prescaling import Rule, active, effects, is_over, rule_from_json, rule_to_json, spans
from balancer.windows import asked

DAY = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def at(rules, *instants):
    return effects(spans(rules, min(instants), max(instants) + SECOND), list(instants))


def sizes(e, *needed):
    return np.clip(needed, e.low, e.high).tolist()


def test_b21_window_edges_to_the_second():
    rule = Rule(cron="0 8 * * 1-5", timezone="Europe/Berlin", duration=2 * HOUR, at_least=10)
    opens = DAY + 7 * HOUR
    floor = at([rule], opens - SECOND, opens, opens + 2 * HOUR - SECOND, opens + 2 * HOUR).floor
    assert floor.tolist() == [-1, 10, 10, -1]
    assert rule in active(spans([rule], opens, opens + SECOND), opens)


def test_b21_ten_requested_are_ten():
    rule = rule_from_json(
        {"group": "orders", "from": "2026-01-05T08:00:00Z", "to": "2026-01-05T09:00:00Z", "replicas": 10}
    )
    inside, outside = DAY + 8 * HOUR, DAY + 9 * HOUR
    assert sizes(at([rule], inside, outside), 1, 1) == [10, 1]


def test_b18_neutral_outside_its_window():
    rules = [Rule(start=DAY, end=DAY + HOUR, at_least=5, factor=2.0), Rule(start=DAY, end=DAY + HOUR, at_most=7)]
    e = at(rules, DAY + HOUR, DAY + 5 * HOUR)
    assert e.exact.tolist() == e.floor.tolist() == e.ceiling.tolist() == [-1, -1]
    assert e.factor.tolist() == [1.0, 1.0]
    assert sizes(e, 0, 9) == [0, 9]  # zero stays zero, nine stays nine


def test_both_clock_changes_keep_the_local_hour_and_the_real_duration():
    rule = Rule(cron="30 2 * * *", timezone="Europe/Berlin", duration=2 * HOUR, at_least=4)
    for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        found = spans([rule], day - timedelta(days=1), day + timedelta(days=2))
        assert len(found) == 3  # 02:30 of three days, the skipped one moved and the doubled one not doubled
        assert all(s.end - s.start == 2 * HOUR for s in found)


def test_windows_of_one_rule_that_touch_act_once():
    rule = Rule(cron="*/15 * * * *", duration=timedelta(minutes=45), factor=2.0)
    assert at([rule], DAY, DAY + HOUR).factor.tolist() == [2.0, 2.0]


def test_a_window_that_began_before_still_acts():
    rule = Rule(cron="0 22 * * *", duration=8 * HOUR, at_least=3)
    night = DAY + 29 * HOUR
    assert [s.start for s in spans([rule], night, night + SECOND)] == [DAY + 22 * HOUR]


def test_the_safest_of_several_is_taken_and_factors_multiply():
    span = {"start": DAY, "end": DAY + HOUR}
    e = at(
        [Rule(**span, at_least=3), Rule(**span, at_least=5), Rule(**span, factor=2.0), Rule(**span, factor=1.5)], DAY
    )
    assert e.floor.tolist() == [5] and e.factor.tolist() == [3.0]
    assert at([Rule(**span, replicas=3), Rule(**span, replicas=4)], DAY).exact.tolist() == [4]


def test_an_override_beats_everything_until_it_expires():
    window = Rule(start=DAY, end=DAY + 5 * HOUR, replicas=9)
    override = rule_from_json({"replicas": 2, "expires": "2026-01-05T02:00:00Z"})
    e = at([override, window], DAY, DAY + 2 * HOUR - SECOND, DAY + 2 * HOUR)
    assert e.exact.tolist() == [2, 2, 9]
    assert is_over(override, DAY + 2 * HOUR) and not is_over(override, DAY + HOUR)
    assert not is_over(Rule(cron="0 8 * * *", duration=HOUR, at_least=1), DAY)


def test_limits_hold_against_every_rule():
    many, none = (Rule(start=DAY, end=DAY + HOUR, replicas=n) for n in (100, 0))
    assert [asked(spans([r], DAY, DAY + HOUR), DAY).held(5, 2, 12) for r in (many, none)] == [12, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"from": "2026-01-05T09:00:00", "to": "2026-01-05T10:00:00Z", "replicas": 1}, "must name its zone"),
        ({"from": "2026-01-05T11:00:00Z", "to": "2026-01-05T10:00:00Z", "replicas": 1}, "must be later"),
        ({"from": "yesterday", "to": "2026-01-05T10:00:00Z", "replicas": 1}, "must be an instant"),
        ({"to": "2026-01-05T10:00:00Z"}, "nothing is asked for"),
        ({"replicas": 4}, "to is missing"),
        ({"to": "2026-01-05T10:00:00Z", "replicas": -1}, "must be 0 or more"),
        ({"to": "2026-01-05T10:00:00Z", "replicas": 1.5}, "whole number"),
        ({"to": "2026-01-05T10:00:00Z", "replicas": True}, "whole number"),
        ({"to": "2026-01-05T10:00:00Z", "replicas": 1, "at_least": 2}, "not both"),
        ({"to": "2026-01-05T10:00:00Z", "at_least": 3, "at_most": 2}, "at_most=2"),
        ({"to": "2026-01-05T10:00:00Z", "factor": 0}, "positive"),
        ({"to": "2026-01-05T10:00:00Z", "factor": 1e308}, "at most 1000"),
        ({"to": "2026-01-05T10:00:00Z", "factor": float("nan")}, "positive"),
        ({"to": "2026-01-05T10:00:00Z", "factor": "2"}, "must be a number"),
        ({"to": "2026-01-05T10:00:00Z", "factor": 2, "name": 5}, "must be text"),
        ({"to": "2026-01-05T10:00:00Z", "expires": "2026-01-05T10:00:00Z", "replicas": 2}, "both given"),
        ({"expires": "2026-01-05T10:00:00Z", "at_least": 2}, "needs replicas"),
        ({"cron": "0 8 * *", "duration": "2h", "at_least": 9}, "Wrong number of fields"),
        ({"cron": "0 8 * * * *", "duration": "2h", "at_least": 9}, "five fields"),
        ({"cron": "0 0 30 2 *", "duration": "2h", "at_least": 9}, "Bad day"),
        ({"cron": "0 8 * * 1-5", "duration": "2", "at_least": 9}, "must have a unit"),
        ({"cron": "0 8 * * 1-5", "duration": "0s", "at_least": 9}, "longer than zero"),
        ({"cron": "0 8 * * 1-5", "at_least": 9}, "longer than zero"),
        ({"cron": "0 8 * * 1-5", "duration": "2h", "timezone": "Mars/Base", "at_least": 9}, "IANA"),
        ({"cron": "0 8 * * 1-5", "duration": "2h", "to": "2026-01-05T10:00:00Z", "at_least": 9}, "cron goes with"),
        ({"duration": "2h", "to": "2026-01-05T10:00:00Z", "at_least": 9}, "duration goes with"),
        ({"when": "noon"}, "when is not known"),
    ],
)
def test_what_cannot_be_meant_is_refused(body, message):
    with pytest.raises(PolicyRefused, match=message):
        rule_from_json(body)


NINE, TEN = "2026-01-05T09:00:00Z", "2026-01-05T10:00:00Z"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"from": "9 o'clock", "to": TEN, "replicas": 1}, 'from="9 o\'clock" must be an instant such as {NINE}'),
        ({"to": "ten", "replicas": 1}, "to='ten' must be an instant such as {NINE}"),
        ({"expires": "ten", "replicas": 1}, "expires='ten' must be an instant such as {NINE}"),
        ({"from": NINE[:-1], "to": TEN, "replicas": 1}, "from=2026-01-05T09:00:00 must name its zone, such as {NINE}"),
        ({"from": NINE, "to": TEN[:-1], "replicas": 1}, "to=2026-01-05T10:00:00 must name its zone, such as {TEN}"),
        (
            {"from": NINE, "to": NINE, "replicas": 1},
            "to=2026-01-05T09:00:00+00:00 must be later than from=2026-01-05T09:00:00+00:00",
        ),
        ({"replicas": 4}, "to is missing: a rule without cron needs an end"),
        ({"to": TEN}, "nothing is asked for: give replicas, at_least, at_most or factor"),
        ({"to": TEN, "replicas": -1}, "replicas=-1 must be 0 or more"),
        ({"to": TEN, "at_least": -1}, "at_least=-1 must be 0 or more"),
        ({"to": TEN, "at_most": -1}, "at_most=-1 must be 0 or more"),
        ({"to": TEN, "replicas": "1"}, "replicas='1' must be a whole number of members"),
        ({"to": TEN, "at_least": "1"}, "at_least='1' must be a whole number of members"),
        ({"to": TEN, "at_most": "1"}, "at_most='1' must be a whole number of members"),
        ({"to": TEN, "factor": "2"}, "factor='2' must be a number"),
        ({"to": TEN, "factor": 1e308}, "factor=1e+308 must be a positive number of at most 1000"),
        ({"to": TEN, "replicas": 1, "at_most": 2}, "replicas is exact; give it or at_least and at_most, not both"),
        ({"expires": TEN, "at_least": 2}, "an override needs replicas and an expiry"),
        (
            {"to": TEN, "expires": TEN, "replicas": 2},
            "to and expires are both given; an override has expires, a window has to",
        ),
        ({"to": TEN, "factor": 2, "name": 5}, "name=5 must be text"),
        ({"cron": 5, "duration": "2h", "at_least": 9}, "cron=5 must be text"),
        ({"cron": "0 8 * * *", "timezone": 5, "duration": "2h", "at_least": 9}, "timezone=5 must be text"),
        (
            {"cron": "0 8 * *", "duration": "2h", "at_least": 9},
            "cron='0 8 * *' must be five fields, such as 0 8 * * 1-5: Wrong number of fields",
        ),
        (
            {"cron": "0 8 * * *", "duration": "2h", "from": NINE, "at_least": 9},
            "cron goes with duration; give from and to, or cron and duration",
        ),
        (
            {"duration": "2h", "to": TEN, "at_least": 9},
            "duration goes with cron; give from and to, or cron and duration",
        ),
        (
            {"whence": "noon"},
            "whence is not known; a rule may have from, to, expires, cron, timezone, duration, replicas, at_least, "
            "at_most, factor, name",
        ),
    ],
)
def test_a_refusal_is_one_true_sentence(body, said):
    with pytest.raises(PolicyRefused) as refused:
        rule_from_json(body)
    assert str(refused.value) == said.format(NINE=NINE, TEN=TEN)


def test_bounds_belong_to_what_is_allowed():
    assert Rule(end=DAY, at_least=2, at_most=2).at_most == 2
    assert Rule(end=DAY, factor=1000.0).factor == 1000
    assert Rule(cron="0 0 1 1 *", duration=timedelta(days=366), replicas=1).duration == timedelta(days=366)
    leap = {"cron": "0 0 29 2 *", "duration": "1h", "at_least": 1}
    assert rule_from_json(leap).cron == "0 0 29 2 *"


def test_a_rule_is_written_in_utc_with_its_own_words():
    berlin = timezone(HOUR)
    window = Rule(start=DAY.astimezone(berlin), end=(DAY + HOUR).astimezone(berlin), at_most=3, at_least=1)
    assert rule_to_json(window) == {
        "from": "2026-01-05T00:00:00Z", "to": "2026-01-05T01:00:00Z", "at_least": 1, "at_most": 3
    }  # fmt: skip
    override = Rule(end=DAY, replicas=0, override=True, name="hands off")
    assert rule_to_json(override) == {"name": "hands off", "expires": "2026-01-05T00:00:00Z", "replicas": 0}
    assert rule_from_json(rule_to_json(override)) == override


def test_zero_is_a_size_and_limits_come_last():
    nothing = at([Rule(start=DAY, end=DAY + HOUR, at_most=0)], DAY)
    assert sizes(nothing, 5) == [0]
    windows = spans([Rule(start=DAY, end=DAY + HOUR, at_most=0)], DAY, DAY + HOUR)
    assert [asked(windows, DAY).held(5, least, 9) for least in (0, 2)] == [0, 2]
    stopped = at([Rule(start=DAY, end=DAY + HOUR, replicas=0)], DAY)
    assert sizes(stopped, 5) == [0]
    capped = at(
        [Rule(start=DAY, end=DAY + HOUR, at_most=7), Rule(start=DAY, end=DAY + HOUR, at_most=4)], DAY, DAY + HOUR
    )
    assert capped.ceiling.tolist() == [7, -1]  # of ceilings the highest, which is the safest
    assert sizes(capped, 9, 9) == [7, 9]
    assert sizes(capped, 3, 3) == [3, 3]


def test_the_override_that_ends_last_beats_all_and_nothing_else_is_forgotten():
    inside = {"start": DAY, "end": DAY + HOUR}
    e = at(
        [
            Rule(start=DAY, end=DAY + 2 * HOUR, replicas=2, override=True),
            Rule(start=DAY, end=DAY + HOUR, replicas=9, override=True),
            Rule(**inside, replicas=20),
            Rule(**inside, at_least=5),
            Rule(**inside, factor=3.0),
        ],
        DAY,
        DAY + HOUR,
    )
    assert (e.exact.tolist(), e.floor.tolist(), e.factor.tolist()) == ([2, 2], [5, -1], [3.0, 1.0])
    assert e.exact.dtype == np.intp


def test_windows_that_only_touch_an_interval_are_not_in_it():
    before, after = Rule(start=DAY - HOUR, end=DAY, replicas=1), Rule(start=DAY + HOUR, end=DAY + 2 * HOUR, replicas=1)
    daily = Rule(cron="0 23 * * *", duration=HOUR, replicas=1)
    assert spans([before, after, daily], DAY, DAY + HOUR) == ()
    assert spans([Rule(cron="0 1 * * *", duration=HOUR, replicas=1)], DAY, DAY + HOUR) == ()
    assert active(spans([before], DAY - HOUR, DAY), DAY) == ()


def test_windows_of_several_rules_are_all_there_in_utc_and_in_order_of_time():
    berlin = timezone(HOUR)
    fixed = Rule(start=(DAY + 3 * HOUR).astimezone(berlin), end=(DAY + 4 * HOUR).astimezone(berlin), replicas=1)
    hourly = Rule(cron="0 * * * *", timezone="Europe/Berlin", duration=HOUR, replicas=1)
    late = Rule(cron="30 5 * * *", duration=timedelta(minutes=10), replicas=2)
    ended = Rule(end=DAY + 2 * HOUR, replicas=3)
    found = spans([late, fixed, hourly, ended], DAY, DAY + 6 * HOUR)
    assert [(s.start, s.end, s.rule) for s in found] == [
        (DAY, DAY + 2 * HOUR, ended),
        (DAY, DAY + 6 * HOUR, hourly),  # windows that touch are one
        (DAY + 3 * HOUR, DAY + 4 * HOUR, fixed),
        (DAY + 5.5 * HOUR, DAY + 5.5 * HOUR + timedelta(minutes=10), late),
    ]
    assert {s.start.tzinfo for s in found} | {s.end.tzinfo for s in found} == {UTC}


@pytest.mark.parametrize("text", ["2h", "120m", "7200s", "PT2H", "1h60m", "PT1H60M", "pt7200S"])
def test_durations_as_people_and_machines_write_them(text):
    assert rule_from_json({"cron": "0 8 * * *", "duration": text, "at_least": 1}).duration == 2 * HOUR


RULES = st.one_of(
    st.builds(
        Rule,
        start=st.one_of(st.none(), st.integers(0, 50).map(lambda n: DAY + n * HOUR)),
        end=st.integers(51, 90).map(lambda n: DAY + n * HOUR),
        at_least=st.integers(0, 9),
        factor=st.one_of(st.none(), st.floats(0.1, 9)),
        name=st.one_of(st.none(), st.just("sale")),
    ),
    st.builds(
        Rule,
        cron=st.sampled_from(["0 8 * * 1-5", "*/15 * * * *", "30 2 * * *", "0 0 1 * *"]),
        timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
        duration=st.integers(1, 3000).map(lambda n: timedelta(minutes=n)),
        replicas=st.integers(0, 9),
    ),
)


@given(RULES)
def test_rules_survive_the_wire(rule):
    assert rule_from_json(rule_to_json(rule)) == rule
    assert rule_from_json({**rule_to_json(rule), "group": "orders", "id": "1"}) == rule


@settings(max_examples=20)
@given(st.lists(RULES, max_size=3), st.integers(0, 100), st.integers(1, 30))
def test_spans_of_a_part_agree_with_spans_of_the_whole(rules, first, hours):
    start = DAY + first * HOUR
    instants = [start + n * timedelta(minutes=7) for n in range(8 * hours)]
    whole = effects(spans(rules, DAY - 30 * HOUR, DAY + 140 * HOUR), instants)
    part = effects(spans(rules, instants[0], instants[-1] + SECOND), instants)
    np.testing.assert_array_equal(whole.exact, part.exact)
    np.testing.assert_array_equal(whole.floor, part.floor)
    np.testing.assert_allclose(whole.factor, part.factor)

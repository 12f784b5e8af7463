"""Lead time ends with the first committed record of the wanted members."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from balancer.leadtime import LeadTimeOrigin, Resize, WorkingMembers, lead_time, measured_lead_times

T0 = datetime(2026, 1, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def looks(*pairs: tuple[float, int]) -> list[WorkingMembers]:
    return [WorkingMembers(at(s), n) for s, n in pairs]


def test_b10_it_ends_when_all_wanted_members_work_not_at_a_tick() -> None:
    seen = looks((10, 2), (61.5, 3), (70, 3), (95.25, 5), (120, 5))
    assert measured_lead_times([Resize(at(0), 2, 5)], seen) == [timedelta(seconds=95.25)]


def test_scale_downs_and_what_was_never_reached_say_nothing() -> None:
    assert measured_lead_times([Resize(at(0), 5, 2)], looks((10, 5))) == []
    assert measured_lead_times([Resize(at(0), 2, 5)], looks((10, 4))) == []
    assert measured_lead_times([Resize(at(60), 2, 3)], looks((10, 9))) == []


def test_a_scale_up_that_another_decision_overtook_says_nothing() -> None:
    resizes = [Resize(at(0), 1, 4), Resize(at(30), 4, 6)]
    assert measured_lead_times(resizes, looks((20, 2), (80, 6))) == [timedelta(seconds=50)]


def test_d20_configured_then_measured_then_default_and_each_says_which_it_is() -> None:
    samples = [timedelta(seconds=s) for s in range(1, 11)]
    configured = lead_time(samples, configured=timedelta(seconds=33))
    assert (configured.value.total_seconds(), configured.origin) == (33, LeadTimeOrigin.CONFIGURED)
    measured = lead_time(samples)
    assert (measured.value.total_seconds(), measured.origin, measured.measured) == (9, LeadTimeOrigin.MEASURED, 10)
    assert lead_time([]).value == timedelta(seconds=120)
    assert lead_time([], default=timedelta(seconds=7)).origin is LeadTimeOrigin.DEFAULT
    assert lead_time(samples[:1]).confidence < measured.confidence < 1


def test_only_the_latest_measurements_count() -> None:
    samples = [timedelta(seconds=500)] * 50 + [timedelta(seconds=20)] * 20
    assert lead_time(samples).value == timedelta(seconds=20)


def test_a_decision_without_growth_hides_no_later_one_and_the_edge_belongs_to_the_first() -> None:
    resizes = [Resize(at(0), 4, 4), Resize(at(10), 1, 3), Resize(at(40), 3, 5)]
    seen = looks((0, 9), (10, 3), (40, 3), (70, 5))  # who works at the instant of a decision does not answer it
    assert measured_lead_times(resizes, seen) == [timedelta(seconds=30), timedelta(seconds=30)]


def test_how_far_a_lead_time_is_to_be_trusted() -> None:
    samples = [timedelta(seconds=s) for s in range(1, 11)]
    configured = lead_time(samples, configured=timedelta(seconds=33))
    assert (configured.confidence, configured.measured) == (1.0, 10)
    assert (lead_time([]).confidence, lead_time([]).measured) == (0.0, 0)
    assert lead_time(samples[:3]).confidence == 0.5

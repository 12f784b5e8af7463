"""Configured, then measured, then a default; each says which it is and how far it is to be trusted."""

from __future__ import annotations

from datetime import timedelta

from balancer.leadtime import LeadTimeOrigin, lead_time


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


def test_how_far_a_lead_time_is_to_be_trusted() -> None:
    samples = [timedelta(seconds=s) for s in range(1, 11)]
    configured = lead_time(samples, configured=timedelta(seconds=33))
    assert (configured.confidence, configured.measured) == (1.0, 10)
    assert (lead_time([]).confidence, lead_time([]).measured) == (0.0, 0)
    assert lead_time(samples[:3]).confidence == 0.5

"""headway report: figures that add up, reasons for what went wrong, a file that stands alone."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from balancer.policy import ScalingPolicy
from forecaster.series import ArrivalSeries
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.timegrid import TimeGrid
from headway.errors import HeadwayError, NotReady
from headway.reports.evidence_page import write_page
from headway.reports.report import did_of, late_share_of, make_report

POLICY = ScalingPolicy(capacity_per_member=10.0, price_per_member_hour=0.5, cap_at_partitions=False)
BEGAN = datetime(2026, 1, 5, tzinfo=UTC)
FEW = ("headway", "rate_reactive", "static_peak")


def history(days, burst=False):
    grid = TimeGrid(60, "Europe/Berlin")
    minutes = np.arange(int(days * 1440))
    counts = np.round(1800 + 1200 * np.sin(2 * np.pi * minutes / 1440 - 2))[None, :]
    if burst:
        counts[0, -300:-280] *= 4
    first = grid.index_of(BEGAN)
    return ArrivalSeries("orders", grid, first, (0,), counts, np.ones(counts.shape, dtype=bool))


@pytest.fixture(scope="module")
def report():
    did = [(BEGAN + timedelta(days=8), 6), (BEGAN + timedelta(days=8, hours=12), 8)]
    return make_report(
        "orders",
        history(9, burst=True),
        POLICY,
        policies=FEW,
        did=lambda start, end: did_of(did, end, 0.01),
    )


def test_the_document_holds_figures_money_and_what_the_group_did(report):
    document = report.document()
    assert set(document["policies"]) == set(FEW)
    ours = document["policies"]["headway"]
    assert ours["cost"] == pytest.approx(ours["hours"] * 0.5, abs=1e-3)
    assert document["did"] == {"hours": 168.0, "rescales": 1, "late_share": 0.01, "cost": 84.0}
    assert document["records"] == round(float(history(9, burst=True).counts[0, -1440:].sum()))
    assert json.loads(json.dumps(document, default=str))["timezone"] == "Europe/Berlin"


def test_the_burst_is_where_it_was_wrong_and_the_reason_is_said(report):
    document = report.document()
    burst = BEGAN + timedelta(days=9) - timedelta(minutes=300)
    hours = [datetime.fromisoformat(w["from"]) for w in document["wrong"]]
    assert any(abs((hour - burst).total_seconds()) <= 3600 for hour in hours)
    assert any("above it" in w["cause"] for w in document["wrong"])
    worst = document["forecast"]["worst"][0]
    assert abs((datetime.fromisoformat(worst["from"]) - burst).total_seconds()) <= 3600
    assert "more than expected" in worst["cause"]
    leads = document["forecast"]["leads"]
    assert [lead["lead_s"] for lead in leads][:4] == [300, 900, 1800, 3600]
    assert all(0 <= lead["wape"] < 0.5 and 0 <= lead["coverage"]["0.95"] <= 1 for lead in leads)


def test_the_file_stands_alone(report, tmp_path):
    file = tmp_path / "report.html"
    write_page(file, report)
    text = file.read_text()
    assert "what Headway would have done" in text and "Where it was wrong, and why" in text
    assert "what the group did" in text and "Cost, at 0.5 a member-hour" in text
    assert "Reliability" in text and "Error by hour of the week" in text
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text.replace('href="data:,"', "")), "offline"


def test_members_are_drawn_as_high_as_what_is_drawn(report):
    """A rival that scales to its limit is in the table; it does not press flat what is drawn."""
    from headway.reports.evidence_page import _members

    wild = replace(report.result.outcomes["static_peak"], changes=((report.result.world.start, 500),))
    outcomes = {**report.result.outcomes, "static_peak": wild}
    plot = _members(replace(report, result=replace(report.result, outcomes=outcomes)))
    drawn = max(n for name in ("headway", "rate_reactive") for _, n in report.result.outcomes[name].changes)
    assert drawn < plot.y_range.end < 40


def test_too_little_history_says_from_when_on(capsys):
    with pytest.raises(NotReady, match="possible from 2026-01-14T00:00:00Z"):
        make_report("orders", history(3), POLICY)
    with pytest.raises(HeadwayError, match="eight must lie before"):
        make_report("orders", history(10), POLICY, days=5)


def test_an_unknown_capacity_and_a_history_of_holes_say_what_to_do():
    with pytest.raises(HeadwayError, match="--capacity R"):
        make_report("orders", history(9), replace(POLICY, capacity_per_member=None))
    whole = history(9)
    holes = replace(whole, known=np.arange(whole.steps)[None, :] % 2 == 0)
    with pytest.raises(HeadwayError, match="headway import"):
        make_report("orders", holes, POLICY)


def test_what_was_not_watched_is_not_known():
    assert "no member was seen" in did_of([], BEGAN, None)


def test_late_records_are_those_of_the_partitions_that_were_late():
    store = MemorySeriesStore(clock=lambda: BEGAN + timedelta(days=1))
    first = int(BEGAN.timestamp()) // 60
    known = np.array([[True, True], [True, False]])
    store.backfill(SeriesKey("orders", "arrivals"), Cells(first, np.array([[10, 30], [60, 5]]), np.ones((2, 2), bool)))
    delays = np.where(known, np.array([[90_000, 1000], [500, 0]]), 0)
    store.backfill(SeriesKey("orders", "latency_ms", "g"), Cells(first, delays, known))
    series = history(1)
    end = BEGAN + timedelta(minutes=2)
    assert late_share_of(store, [series.topic], "g", timedelta(seconds=60), BEGAN, end) == 10 / 100
    assert late_share_of(store, [series.topic], "other", timedelta(seconds=60), BEGAN, end) is None


def test_rivals_that_are_played_beside_come_out_the_same(report):
    with ThreadPoolExecutor(1) as beside:
        again = make_report("orders", history(9, burst=True), POLICY, policies=FEW, beside=beside)
    assert again.document()["policies"] == report.document()["policies"]

"""What the page's panels are drawn from: sums checked by hand, unknown said as unknown."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

from balancer.plan import Bound, PlannedStep, ScalingPlan
from forecaster.forecast import NoForecast
from forecaster.stores.base import Cells, SeriesKey
from headway.status.board import GroupView, ReplicaPoint
from headway.status.overview import urgency
from tests.unit.headway.conftest import NOW, a_decision, a_forecast, a_plan, a_snapshot


def record(application, counts, known=None, metric="arrivals", group=None):
    counts = np.asarray(counts, dtype=np.int64)
    known = np.ones(counts.shape, dtype=bool) if known is None else known
    end = int(NOW.timestamp()) // 60
    cells = Cells(end - counts.shape[1], np.where(known, counts, 0), known)
    application.store.backfill(SeriesKey("orders", metric, group), cells)


def fill(application, **values):
    def change(view):
        for name, value in values.items():
            if name == "forecasts":
                view.forecasts.update(value)
            else:
                setattr(view, name, value)

    application.board.update("orders", "plan", change, NOW)


def test_the_overview_sorts_by_what_needs_attention_and_says_when_not_yet(application, client):
    application.board.problem("orders", "arrivals", "kafka does not answer")
    why = NoForecast("bills", NOW, "1 of 24 hours is recorded", NOW + timedelta(hours=23))
    application.board.update("bills", "forecast", lambda v: v.forecasts.update(bills=why), NOW)
    body = client.get("/v1/overview").json()
    assert [g["group"] for g in body["groups"]] == ["orders", "bills"]
    bills = body["groups"][1]
    assert bills["not_yet"] == {"reason": "1 of 24 hours is recorded", "possible_from": "2026-01-06T08:00:00Z"}
    assert bills["spark"]["arrivals"] == [] and bills["day"]["records"] is None
    assert body["figures"]["late_records"] is None, "unknown is not zero"


def test_sparkline_and_day_figures_add_up(application, client):
    record(application, np.full((2, 1440), 300))
    points = [
        ReplicaPoint(NOW - timedelta(hours=4), 2, 2, 3),
        ReplicaPoint(NOW - timedelta(hours=2), 4, 2, 5),
        ReplicaPoint(NOW, 4, 4, 5),
    ]
    latencies = [(NOW - timedelta(minutes=2), 70.0), (NOW - timedelta(minutes=1), 5.0)]
    fill(application, capacity_per_member=5.0, forecasts={"orders": a_forecast()}, plan=a_plan())
    view = application.board.get("orders")
    view.replicas.extend(points)
    view.latencies.extend(latencies)
    found = next(g for g in client.get("/v1/overview").json()["groups"] if g["group"] == "orders")
    assert found["spark"]["arrivals"] == [10.0] * 96
    assert found["spark"]["ahead"]["median"][0] == 20.0 and found["spark"]["ahead"]["level"] == 0.95
    day = found["day"]
    assert day["records"] == 2 * 300 * 1440
    assert day["late_records"] == 600, "the minute whose delay was beyond 60 s"
    assert (day["member_hours"], day["reactive_member_hours"], day["rescales"]) == (12.0, 16.0, 1)


def test_members_that_nobody_saw_are_not_made_up(application, client):
    """An outage of two of four hours: neither hours, nor what was saved, nor the rule's hours count it."""
    view = application.board.get("orders")
    for hours, members in ((4, 4), (3, 4), (2, None), (1, 4), (0, 4)):
        view.replicas.append(ReplicaPoint(NOW - timedelta(hours=hours), members, members, members))
    fill(application, capacity_per_member=5.0)
    application.peaks.clear()
    day = next(g for g in client.get("/v1/overview").json()["groups"] if g["group"] == "orders")["day"]
    assert (day["member_hours"], day["reactive_member_hours"], day["rescales"]) == (12.0, 12.0, 0)


def test_a_group_that_nobody_saw_has_no_hours_of_any_rule(application, client):
    record(application, np.full((1, 1440), 600))
    view = application.board.get("orders")
    view.replicas.extend(ReplicaPoint(NOW - timedelta(hours=h), None, None) for h in (3, 2, 1))
    fill(application, capacity_per_member=5.0)
    day = next(g for g in client.get("/v1/overview").json()["groups"] if g["group"] == "orders")["day"]
    assert (day["member_hours"], day["reactive_member_hours"]) == (None, None)


def test_the_reactive_shadow_is_computed_where_nobody_ran_it(application, client):
    record(application, np.full((1, 1440), 600))
    fill(application, capacity_per_member=5.0)
    view = application.board.get("orders")
    view.replicas.extend(ReplicaPoint(NOW - timedelta(minutes=m), 2, 2) for m in (60, 30, 1))
    points = client.get("/v1/groups/orders/series?name=replicas").json()["points"]
    assert {p["reactive"] for p in points if p["reactive"] is not None} == {3}, "10 records/s over 0.8 of 5"
    assert {(p["requested"], p["working"]) for p in points} == {(2, 2)}, "what the rule says changes nothing of these"


def test_members_that_were_not_seen_are_null_and_not_those_of_before(application, client):
    view = application.board.get("orders")
    for minute, count in zip((60, 50, 40), (3, None, 3), strict=True):
        view.saw(ReplicaPoint(NOW - timedelta(minutes=minute), count, count))
    points = client.get("/v1/groups/orders/series?name=replicas").json()["points"]
    assert [p["working"] for p in points] == [3, None, 3]


def test_a_step_without_a_known_delay_is_null(application, client):
    known = np.array([[False, True, False, True, False]])
    record(application, [[0, 2000, 0, 3000, 0]], known, "latency_ms", "orders")
    points = client.get("/v1/groups/orders/series?name=latency").json()["points"]
    assert [p["p99_s"] for p in points] == [2.0, None, 3.0]
    span = {"from": (NOW - timedelta(minutes=5)).isoformat(), "by": "partition", "name": "latency"}
    body = client.get("/v1/groups/orders/series", params=span).json()
    assert (body["name"], body["unit"], body["step_s"]) == ("latency", "seconds", 60)
    assert body["partitions"] == [{"partition": 0, "values": [None, 2.0, None, 3.0, None]}]
    assert client.get("/v1/overview").status_code == 200


@pytest.mark.parametrize("name", ["capacity", "lead_time"])
def test_what_is_of_the_whole_group_is_refused_by_partition(client, name):
    answer = client.get(f"/v1/groups/orders/series?name={name}&by=partition")
    assert answer.status_code == 422 and "by=partition goes with arrivals, lag, latency" in answer.json()["detail"]


def test_replicas_are_of_the_group_whichever_way_they_are_asked_for(client):
    answer = client.get("/v1/groups/orders/series?name=replicas&by=partition")
    assert answer.status_code == 200
    assert answer.json() == client.get("/v1/groups/orders/series?name=replicas").json()


def test_late_records_come_from_recorded_delays_where_no_replay_says_them(application, client):
    record(application, [[500, 90_000], [900, 0]], np.array([[True, True], [True, False]]), "latency_ms", "orders")
    record(application, [[10, 30], [60, 5]])
    found = next(g for g in client.get("/v1/overview").json()["groups"] if g["group"] == "orders")
    assert found["day"]["late_records"] == 35, "what arrived in the minute whose delay was 90 s"


def test_the_heat_map_keeps_gaps_and_says_when_a_partition_saturates(application, client):
    known = np.ones((2, 60), dtype=bool)
    known[1, :30] = False
    record(application, np.full((2, 60), 60), known)
    fill(application, capacity_per_member=22.0, forecasts={"orders": a_forecast()})
    start = (NOW - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    body = client.get(f"/v1/groups/orders/heatmap?from={start}&columns=2").json()
    assert body["step_s"] == 1800 and body["values"] == [[1.0, 1.0], [None, 1.0]]
    assert body["ahead"]["values"][0] == [10.0]
    assert body["hot"][0]["saturates_at"] == "2026-01-05T09:00:00Z" and body["hot"][0]["peak"] == 25.0


@pytest.mark.parametrize(
    "path",
    [
        "heatmap?from=2026-01-05T10:00:00Z&to=2026-01-05T09:00:00Z",
        "heatmap?from=0001-01-01T00:00:00Z&to=9999-01-01T00:00:00Z",
        "windows?from=yesterday",
        "windows?to=0001-01-01T00:00:00Z",
        "expected?lead=soon",
        "expected?origin=2026-01-05",
        "timeline?since=x",
        "assignment?since=x",
    ],
)
def test_what_cannot_be_meant_is_refused(client, path):
    answer = client.get(f"/v1/groups/orders/{path}")
    assert answer.status_code == 422 and answer.json()["detail"]


@pytest.mark.parametrize("panel", ["heatmap", "assignment", "windows", "timeline", "expected", "quality"])
def test_an_unknown_group_has_no_panels(client, panel):
    assert client.get(f"/v1/groups/order/{panel}").status_code == 404
    assert client.get("/v1/groups/orders/heatmap?topic=other").status_code == 404


def test_owners_loads_and_changes_of_owners(application, client):
    assert "not been seen" in client.get("/v1/groups/orders/assignment").json()["why"]
    application.board.update("orders", "snapshot", lambda v: setattr(v, "snapshot", a_snapshot()), NOW)
    body = client.get("/v1/groups/orders/assignment").json()
    assert body["members"][0]["load"] == 12.5 and body["skew"] == 1.0 and body["changes"] == []
    swapped = a_snapshot()
    a, b = swapped.members
    moved = type(swapped)("orders", NOW, 2, (type(a)("a"), type(b)("b", a.partitions)), swapped.partitions)
    application.board.update("orders", "snapshot", lambda v: setattr(v, "snapshot", moved), NOW)
    change = client.get("/v1/groups/orders/assignment").json()["changes"]
    assert [(c["partition"], c["source"], c["target"]) for c in change] == [("orders:0", "a", "b")]


def test_the_timeline_holds_changes_alone_and_recalls_what_came_before(application, client):
    token = application.plans.lead("orders", "t", timedelta(minutes=5))
    for minutes in (30, 20):
        at = NOW - timedelta(minutes=minutes)
        decision = a_decision(at=at, id=str(minutes))
        application.plans.record(type(decision)(str(minutes), "orders", at, "recommend", plan_at(at, 2), {}), token)
    for minutes, count in ((5, 2), (4, 2), (3, 4), (2, 4)):
        plan = plan_at(NOW - timedelta(minutes=minutes), count)
        application.board.update("orders", "plan", lambda v, plan=plan: setattr(v, "plan", plan), NOW)
    changes = client.get("/v1/groups/orders/timeline").json()["changes"]
    assert [(c["at"][11:16], c["replicas"]) for c in changes] == [("08:30", 2), ("08:55", 2), ("08:57", 4)]


def plan_at(at, count):
    return ScalingPlan("orders", at, (PlannedStep(at, count, 10.0),), Bound(), ("because",), 1)


def test_windows_lie_on_the_axis(application, client):
    body = {"group": "orders", "cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "2h", "at_least": 9}
    application.operations.add_prescale(body, "mia", NOW)
    answer = client.get("/v1/groups/orders/windows?from=2026-01-05T00:00:00Z&to=2026-01-06T00:00:00Z").json()
    assert [(w["from"], w["to"]) for w in answer["windows"]] == [("2026-01-05T07:00:00Z", "2026-01-05T09:00:00Z")]


def test_what_was_expected_is_kept_and_scored_by_lead(application, client):
    record(application, np.full((2, 1440 * 8), 600))
    assert "no forecast has been kept" in client.get("/v1/groups/orders/quality").json()["why"]
    made = a_forecast()
    for hours in (5, 4, 3):
        application.expectations.note(replace(made, origin=NOW - timedelta(hours=hours)))
    quality = client.get("/v1/groups/orders/quality").json()
    assert quality["forecasts"] == 3
    lead = quality["leads"][0]
    assert lead["wape"] == 0.0 and lead["coverage"]["0.95"] == 1.0 and lead["naive_wape"]["last week"] == 0.0
    expected = client.get("/v1/groups/orders/expected?lead=30m").json()["points"]
    assert (expected[0]["at"][11:16], expected[0]["median"], expected[0]["high"]) == ("04:30", 20.0, 50.0)
    whole = client.get("/v1/groups/orders/expected?origin=2026-01-05T05:30:00Z").json()
    assert whole["origin"] == "2026-01-05T05:00:00Z" and len(whole["points"]) == 60


def test_the_topics_total_is_not_bounded_by_its_partitions(application, client):
    record(application, np.full((400, 1440), 6))
    day = client.get("/v1/groups/orders/series?name=arrivals").json()
    assert len(day["values"]) == 1440 and day["values"][0] == 40.0
    assert client.get("/v1/groups/orders/series?name=arrivals&by=partition").status_code == 422


def test_the_page_is_small_cached_and_holds_the_first_answer(application, client):
    index = client.get("/")
    assert 'id="first"' in index.text and "Content-Security-Policy" in index.headers
    names = ["style.css", "theme.js", "app.js", "api.js", "charts.js", "dom.js", "format.js", "group.js", "heatmap.js"]
    names += [
        "decisions.js",
        "operators.js",
        "owners.js",
        "overview.js",
        "quality.js",
        "whatif.js",
        "bokeh.js",
        "bokeh-api.js",
    ]
    size = int(client.get("/", headers={"Accept-Encoding": "gzip"}).headers["content-length"])
    for name in names:
        answer = client.get(f"/page/{name}", headers={"Accept-Encoding": "gzip"})
        assert answer.status_code == 200 and answer.headers["content-encoding"] == "gzip"
        size += int(answer.headers["content-length"])
        again = client.get(f"/page/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304 and again.content == b""
    assert size <= 500_000, "first load, gzipped"
    assert client.get("/page/index.html").status_code == 404 and client.get("/page/..%2fboard.py").status_code == 404


def test_the_embedded_answer_cannot_close_its_block(application, client):
    application.board.problem("orders", "arrivals", "</script><script>alert(1)</script>")
    text = client.get("/").text
    assert "</script><script>alert" not in text and "\\u003c/script>" in text


def test_a_steady_group_keeps_few_points_and_loses_no_change():
    view, every = GroupView("orders", ("orders",)), timedelta(seconds=15)
    members = [3] * 400 + [4] + [3] * 400
    for k, count in enumerate(members):
        view.saw(ReplicaPoint(NOW + k * every, count, count))
    points = list(view.replicas)
    assert len(points) < 50
    assert [p.requested for p in points].count(4) == 1
    assert points[-1].at == NOW + 800 * every
    assert max(b.at - a.at for a, b in pairwise(points)) <= timedelta(minutes=5)
    held = sum(((b.at - a.at) * a.requested for a, b in pairwise(points)), timedelta())
    assert held == every * sum(members[:-1])


def record_of(application, topic, counts, known=None):
    counts = np.asarray(counts, dtype=np.int64)
    known = np.ones(counts.shape, dtype=bool) if known is None else known
    cells = Cells(int(NOW.timestamp()) // 60 - counts.shape[1], np.where(known, counts, 0), known)
    application.store.backfill(SeriesKey(topic, "arrivals"), cells)


def overview_of(client, group="orders"):
    return next(g for g in client.get("/v1/overview").json()["groups"] if g["group"] == group)


def test_a_group_of_several_topics_is_summed_where_all_of_them_are_known(application, client):
    application.board.get("orders").topics = ("orders", "returns")
    record(application, np.full((1, 1440), 600))
    found = overview_of(client)
    assert found["spark"]["arrivals"] == [] and found["spark"]["why"] == "nothing of returns is recorded yet"
    assert found["day"]["records"] is None, "one topic alone is not the group"
    known = np.ones((1, 1440), dtype=bool)
    known[0, :15] = False
    record_of(application, "returns", np.full((1, 1440), 300), known)
    fill(application, forecasts={"orders": a_forecast(), "returns": a_forecast("returns")}, capacity_per_member=5.0)
    found = overview_of(client)
    assert found["spark"]["topics"] == ["orders", "returns"] and found["spark"]["why"] is None
    assert found["spark"]["arrivals"] == [None] + [15.0] * 95
    assert found["spark"]["ahead"]["median"][0] == 40.0
    assert found["day"]["records"] == 1425 * 900
    assert found["day"]["static_peak_members"] == 3, "the busiest hour of both together"


def test_what_was_saved_is_of_the_week_and_says_of_how_much_of_it(application, client):
    record(application, np.full((1, 9 * 1440), 600))
    view = application.board.get("orders")
    for hours, members in ((200, 9), (160, 1), (100, 1), (40, 1), (0, 1)):
        view.replicas.append(ReplicaPoint(NOW - timedelta(hours=hours), members, members))
    fill(application, capacity_per_member=5.0)
    day = overview_of(client)["day"]
    assert (day["static_peak_members"], day["saved_vs_static"], day["saved_over_h"]) == (2, 0.5, 160.0)


def test_among_equals_comes_first_who_acts_and_then_who_is_late():
    def a_group(name, state, mode="recommend", late=0):
        return {"group": name, "state": state, "mode": mode, "day": {"records": 100, "late_records": late}}

    unordered = [a_group("d", "fine"), a_group("c", "attention"), a_group("b", "attention", late=3),
                 a_group("z", "attention", "act"), a_group("a", "acting")]  # fmt: skip
    assert "".join(g["group"] for g in sorted(unordered, key=urgency)) == "zbcad"


def test_the_rules_shadow_has_no_value_where_arrivals_are_not_known(application, client):
    known = np.ones((1, 1440), dtype=bool)
    known[0, -40:-20] = False
    record(application, np.full((1, 1440), 600), known)
    fill(application, capacity_per_member=5.0)
    view = application.board.get("orders")
    view.replicas.extend(ReplicaPoint(NOW - timedelta(minutes=m), 2, 2) for m in (60, 1))
    points = client.get("/v1/groups/orders/series?name=replicas").json()["points"]
    at = {p["at"][11:16]: p["reactive"] for p in points}
    assert at["08:21"] is None, "the first minute that nothing is known of"
    assert at["08:41"] == 3 and at["08:00"] == 3

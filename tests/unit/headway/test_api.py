"""The /v1 routes over in-memory twins: documents, refusals and what happens while the store is away."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import numpy as np
import pytest

from balancer.errors import PlanStoreUnavailable
from forecaster.errors import StoreRefused, StoreUnavailable
from forecaster.forecast import NoForecast
from forecaster.stores.base import Cells, SeriesKey
from forecaster.topics import GroupId
from headway.configuration.settings import Settings
from tests.unit.headway.conftest import NOW, a_decision, a_forecast, a_plan, a_snapshot


def put(application, **facts):
    def change(view):
        for name, value in facts.items():
            if name == "forecasts":
                view.forecasts.update(value)
            else:
                setattr(view, name, value)

    for kind in facts:
        application.board.update("orders", kind.removesuffix("s"), change, NOW)


def test_groups_list_those_that_need_a_person_first(application, client):
    application.board.problem("orders", "arrivals", "broker does not answer")
    body = client.get("/v1/groups").json()
    assert [g["group"] for g in body["groups"]] == ["orders", "bills"]
    assert body["groups"][0]["state"] == "attention"
    assert body["groups"][0]["problems"] == {"arrivals": "broker does not answer"}


def test_a_group_says_how_it_stands(application, client):
    put(application, plan=a_plan(), snapshot=a_snapshot(), forecasts={"orders": a_forecast()})
    body = client.get("/v1/groups/orders").json()
    assert {"state", "mode", "rung", "gate", "bound_by", "ages"} <= set(body)
    assert body["rung"] == "own_model"
    assert body["bound_by"] == {"kind": "partition", "id": "orders:1", "from": "2026-01-05T09:00:00Z"}
    assert body["replicas"] == {"requested": 2, "working": 1, "planned": 3}
    assert body["next"] == {"from": "2026-01-05T10:00:00Z", "replicas": 5, "demand": 90.0}
    assert body["ages"] == {"forecast": 0.0, "plan": 0.0, "snapshot": 0.0}


def test_unknown_group_is_404_with_the_nearest_names(client):
    answer = client.get("/v1/groups/order")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["nearest"] == ["orders"]
    assert "did you mean orders?" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["team/orders", "a/b/c d", "Bücher/日本", "50%", "."])
def test_a_group_may_be_called_whatever_kafka_takes(application, client, name):
    application.board.add(name, ("orders",))
    written = quote(name, safe="").replace(".", "%2E")
    assert client.get(f"/v1/groups/{written}").json()["group"] == name
    assert client.get(f"/v1/groups/{written}/decisions").status_code == 200
    paused = client.put(f"/v1/groups/{written}/pause", json={"for": "2h"})
    assert paused.json()["group"] == name
    assert application.operations.paused(name, NOW) is not None
    unknown = client.get(f"/v1/groups/{written}/nothing")
    assert (unknown.status_code, "/docs lists" in unknown.json()["detail"]) == (404, True)


def test_forecast_by_partition_and_topic(application, client):
    put(application, forecasts={"orders": a_forecast()})
    body = client.get("/v1/groups/orders/forecast?horizon=10m&levels=.5,.95").json()
    assert body["origin"] == "2026-01-05T09:00:00Z"
    assert body["step_s"] == 60
    assert body["levels"] == [0.5, 0.95]
    assert [p["partition"] for p in body["partitions"]] == [0, 1]
    assert body["partitions"][0]["values"]["0.95"] == [25.0] * 10
    total = client.get("/v1/groups/orders/forecast?by=topic").json()
    assert "partitions" not in total
    assert total["total"]["0.5"] == [20.0] * 60


def test_d2_too_little_history_is_an_answer_with_reason_and_instant(application, client):
    reason = "have 300 of 1440 steps of history"
    put(application, forecasts={"orders": NoForecast("orders", NOW, reason, NOW + timedelta(hours=19))})
    answer = client.get("/v1/groups/orders/forecast")
    assert answer.status_code == 200
    assert answer.json()["values"] is None
    assert answer.json()["reasons"] == [reason]
    assert answer.json()["possible_from"] == "2026-01-06T04:00:00Z"
    assert client.get("/v1/groups/bills/forecast").json()["values"] is None  # nothing yet is an answer too


@pytest.mark.parametrize("query", ["levels=.7", "levels=x", "levels=.5,", "horizon=5", "horizon=soon", "by=member"])
def test_a_forecast_query_that_cannot_be_meant_is_422(application, client, query):
    put(application, forecasts={"orders": a_forecast()})
    assert client.get(f"/v1/groups/orders/forecast?{query}").status_code == 422


def test_plan_has_reasons_and_what_bounds_it(application, client):
    assert client.get("/v1/groups/orders/plan").json()["steps"] == []
    put(application, plan=a_plan())
    body = client.get("/v1/groups/orders/plan").json()
    assert {"steps", "bound_by", "reasons", "lower_bound"} <= set(body)
    assert [(s["from"], s["replicas"]) for s in body["steps"]] == [
        ("2026-01-05T09:00:00Z", 3),
        ("2026-01-05T10:00:00Z", 5),
    ]


def test_a_document_is_serialised_once_a_tick(application, client, monkeypatch):
    put(application, plan=a_plan())
    client.get("/v1/groups/orders/plan")
    monkeypatch.setattr("headway.status.board.encode", lambda _: pytest.fail("encoded twice"))
    client.get("/v1/groups/orders/plan")
    monkeypatch.undo()
    put(application, plan=a_plan(replicas=9))
    assert client.get("/v1/groups/orders/plan").json()["replicas"] == 9


def test_decisions_come_from_memory_while_the_store_is_away(application, client, monkeypatch):
    token = application.plans.lead("orders", "me", timedelta(seconds=10))
    application.plans.record(a_decision(), token)
    body = client.get("/v1/groups/orders/decisions").json()
    assert [d["id"] for d in body["decisions"]] == ["d1"]
    assert body["stale"] is False
    application.board.update("orders", "decision", lambda v: v.decisions.append(a_decision(id="d2")))
    monkeypatch.setattr(application.plans, "decisions", gone(PlanStoreUnavailable("no answer")))
    body = client.get("/v1/groups/orders/decisions?inputs=true").json()
    assert [d["id"] for d in body["decisions"]] == ["d2"]
    assert body["stale"] is True
    assert body["decisions"][0]["inputs"] == {"capacity": 20.0}


def test_c1_the_scaler_answers_last_good_with_age_or_not_at_all_and_never_zero(application, client):
    assert client.get("/v1/groups/orders/scaler").status_code == 503
    put(application, plan=a_plan(replicas=7))
    assert client.get("/v1/groups/orders/scaler").json() == {"replicas": 7, "age_s": 0.0}
    application.clock = lambda: NOW + timedelta(seconds=90)
    application.board.problem("orders", "plan", "store is away")
    assert client.get("/v1/groups/orders/scaler").json() == {"replicas": 7, "age_s": 90.0}
    application.clock = lambda: NOW + timedelta(hours=1)
    answer = client.get("/v1/groups/orders/scaler")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"


def test_keda_is_told_what_was_released_and_not_what_is_only_recommended(application, client):
    keda = {"orders": {"topics": ["orders"], "actuator": {"kind": "keda"}}}
    application.settings = Settings(groups=keda)
    put(application, plan=a_plan(replicas=7))
    answer = client.get("/v1/groups/orders/scaler")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "the mode is recommend" in answer.json()["detail"]
    application.posts.scale(GroupId("orders"), 4, NOW)  # in mode act, while a newer plan waits for its approval, say
    application.clock = lambda: NOW + timedelta(seconds=90)
    assert client.get("/v1/groups/orders/scaler").json() == {"replicas": 4, "age_s": 90.0}
    application.board.update("orders", "mode", lambda v: setattr(v, "paused", True))  # affirms what is there
    assert client.get("/v1/groups/orders/scaler").json() == {"replicas": 4, "age_s": 90.0}
    application.clock = lambda: NOW + timedelta(hours=1)
    assert client.get("/v1/groups/orders/scaler").json()["title"] == "Plan too old"


def test_mode_pause_approve_and_their_audit(application, client):
    assert client.put("/v1/groups/orders/mode", json={"mode": "shadow"}).json()["state"] == "shadow"
    assert client.put("/v1/groups/nobody/mode", json={"mode": "off"}).status_code == 404
    assert client.put("/v1/groups/orders/mode", json={"mode": "acting"}).status_code == 422
    who = {"X-Headway-Actor": "ann"}
    paused = client.put("/v1/groups/*/pause", json={"for": "2h"}, headers=who).json()
    assert paused == {"group": "*", "state": "paused", "until": "2026-01-05T11:00:00Z"}
    assert application.operations.paused("bills", NOW) is not None
    assert application.operations.paused("bills", NOW + timedelta(hours=2)) is None
    refused = client.put("/v1/groups/*/pause", json={"for": "0s"})
    assert (refused.status_code, "pauses nothing" in refused.text) == (422, True)
    assert client.put("/v1/groups/*/pause", json={"paused": False}).json()["state"] == "running"
    assert application.operations.paused("bills", NOW) is None
    assert client.post("/v1/groups/orders/approvals", json={}).status_code == 409
    token = application.plans.lead("orders", "me", timedelta(seconds=10))
    version = application.plans.publish(a_plan(), token)
    assert client.post("/v1/groups/orders/approvals", json={"version": version}).json()["version"] == version
    assert client.post("/v1/groups/orders/approvals", json={"version": version + 1}).status_code == 409
    actions = [(e["actor"], e["action"]) for e in client.get("/v1/audit").json()["entries"]]
    assert actions == [("api", "mode"), ("ann", "pause"), ("api", "resume"), ("api", "approve")]


def test_act_is_refused_while_a_gate_is_closed(application, client):
    application.act_gate = lambda group: ("the actuator does not answer",)
    answer = client.put("/v1/groups/orders/mode", json={"mode": "act"})
    assert answer.status_code == 409
    assert "the actuator does not answer" in answer.json()["detail"]


def test_push_is_idempotent_and_reads_back(application, client):
    rows = [
        {"start": "2026-01-05T08:58:00Z", "partition": 0, "count": 60},
        {"start": "2026-01-05T08:59:00Z", "partition": 1, "count": 120},
    ]
    for _ in range(2):
        answer = client.post("/v1/topics/orders/arrivals", json={"step_s": 60, "rows": rows})
        assert answer.json() == {"rows": 2, "steps": 2, "partitions": 2}
    span = "from=2026-01-05T08:57:00Z&to=2026-01-05T09:00:00Z"
    body = client.get(f"/v1/groups/orders/series?by=partition&{span}").json()
    assert [p["values"] for p in body["partitions"]] == [[None, 1.0, None], [None, None, 2.0]]
    assert body["unit"] == "records/s"
    assert client.get(f"/v1/groups/orders/series?{span}").json()["values"] == [None, None, None]


@pytest.mark.parametrize(
    ("topic", "body", "status", "said"),
    [
        ("nobody", {"step_s": 60, "rows": [{"start": "2026-01-05T08:58:00Z", "count": 1}]}, 404, "no group reads"),
        ("orders", {"step_s": 7, "rows": [{"start": "2026-01-05T08:58:00Z", "count": 1}]}, 422, "divides a day"),
        (
            "orders",
            {"step_s": 60, "rows": [{"start": "2026-01-05T08:58:01Z", "count": 1}]},
            422,
            "not the start of a 60 s step",
        ),
        ("orders", {"step_s": 60, "rows": [{"start": "2026-01-05T08:58:00", "count": 1}]}, 422, "no time zone"),
        ("orders", {"step_s": 60, "rows": [{"start": "2026-01-05T08:58:00Z", "count": -1}]}, 422, "count"),
        ("orders", {"step_s": 60, "rows": [{"start": "2026-01-05T09:10:00Z", "count": 1}]}, 422, "future"),
        ("orders", {"step_s": 60, "rows": [{"start": "2026-01-05T08:58:00Z", "count": 1}] * 2}, 422, "given twice"),
        ("orders", {"step_s": 60, "rows": [{"start": "0001-01-01T00:00:00Z", "count": 1}]}, 422, "before 1970"),
        ("orders", {"step_s": 60, "rows": []}, 422, "rows"),
        ("orders", {"step_s": 60, "row": []}, 422, "row"),
    ],
)
def test_push_refusals_say_why(client, topic, body, status, said):
    answer = client.post(f"/v1/topics/{topic}/arrivals", json=body)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_what_the_framework_refuses_says_what_to_do(client):
    broken = client.post(
        "/v1/topics/orders/arrivals", content=b"\xff\xfe{", headers={"Content-Type": "application/json"}
    )
    assert (broken.status_code, broken.json()["detail"]) == (400, "the body cannot be read; send JSON in UTF-8")
    assert "takes" in client.patch("/v1/groups").json()["detail"]
    assert "/docs" in client.get("/v1/nothing").json()["detail"]


def test_weeks_pushed_at_once_are_history_and_one_bad_row_refuses_them_all(application, client):
    begin = NOW - timedelta(days=14)
    rows = [{"start": (begin + timedelta(minutes=m)).isoformat(), "count": m} for m in range(14 * 1440)]
    refused = client.post(
        "/v1/topics/orders/arrivals", json={"step_s": 60, "rows": [*rows, {"start": rows[0]["start"], "count": 1}]}
    )
    assert refused.status_code == 422
    assert application.store.topics() == ()
    answer = client.post("/v1/topics/orders/arrivals", json={"step_s": 60, "rows": rows})
    assert answer.json() == {"rows": 20160, "steps": 20160, "partitions": 1}
    first = int(begin.timestamp()) // 60
    assert application.store.read(SeriesKey("orders", "arrivals"), first, first + 20160).known.all()


def test_a_dead_store_is_503_with_retry_after(application, client, monkeypatch):
    monkeypatch.setattr(application.store, "meta", gone(StoreUnavailable("redis://h does not answer")))
    answer = client.get("/v1/groups/orders/series")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "does not answer" in answer.json()["detail"]


def test_a_store_with_a_full_disk_is_503_too(application, client, monkeypatch):
    def full(*args):
        raise StoreRefused("redis://h:1: MISCONF; the server cannot write its files: make room on its disk")

    monkeypatch.setattr(application.store, "append", full)
    row = {"start": "2026-01-05T08:58:00Z", "partition": 0, "count": 60}
    answer = client.post("/v1/topics/orders/arrivals", json={"step_s": 60, "rows": [row]})
    assert (answer.status_code, "make room" in answer.json()["detail"]) == (503, True)
    assert int(answer.headers["Retry-After"]) > 0


def test_series_of_replicas_and_limits(application, client):
    key = SeriesKey("orders", "arrivals")
    index = int(NOW.timestamp()) // 60 - 3
    application.store.backfill(key, Cells(index, np.array([[60, 0, 30]]), np.array([[True, True, True]])))
    body = client.get("/v1/groups/orders/series?from=2026-01-05T08:57:00Z&to=2026-01-05T09:00:00Z").json()
    assert body["values"] == [1.0, 0.0, 0.5]  # zero is a value
    assert client.get("/v1/groups/orders/series?from=0001-01-02T00:00:00Z").status_code == 422
    assert client.get("/v1/groups/orders/series?name=replicas").json()["points"] == []


def test_what_if_changes_nothing(application, client):
    assert client.post("/v1/groups/orders/plan", json={}).status_code == 503
    seen = []
    application.what_if = lambda group, changes, now: seen.append((group, changes)) or {"replicas": 4}
    assert client.post("/v1/groups/orders/plan", json={"capacity": 50}).json() == {"replicas": 4}
    assert seen[0][1]["capacity"] == 50
    span = {"from": "2026-01-05T00:00:00Z", "to": None}
    assert client.post("/v1/groups/orders/plan", json={"history": {"from": span["from"]}}).status_code == 200
    assert seen[-1][1]["history"] == span
    assert client.post("/v1/groups/orders/plan", json={"history": {"from": "yesterday"}}).status_code in (400, 422)
    assert client.post("/v1/groups/orders/plan", json={"capacity": -1}).status_code == 422


def test_health_readiness_metrics_and_jobs(application, client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").status_code == 503
    application.ready = True
    assert client.get("/readyz").status_code == 200
    put(application, snapshot=a_snapshot(), plan=a_plan())
    text = client.get("/metrics").text
    assert 'headway_group_lag_records{group="orders"} 7.0' in text
    assert 'headway_group_replicas{group="orders",kind="planned"} 3.0' in text
    assert 'headway_http_requests_total{method="GET",route="/healthz",status="200"} 1.0' in text
    assert client.get("/v1/jobs").json() == {"jobs": []}
    assert client.get("/v1/groups/orders/moves").json() == {"moves": []}


def test_a20_metrics_leave_out_what_is_unknown_or_gone(application, client):
    put(application, snapshot=a_snapshot(), plan=a_plan())
    assert "headway_group_lag_records{" in client.get("/metrics").text
    application.board.get("orders").snapshot = None
    application.board.problem("orders", "arrivals", "no broker answers")
    text = client.get("/metrics").text
    assert "headway_group_lag_records{" not in text
    assert 'headway_group_problem{group="orders",input="arrivals"} 1.0' in text
    assert 'headway_group_state{group="orders",state="attention"} 1.0' in text
    application.board.remove("orders")
    assert 'group="orders"' not in client.get("/metrics").text


def test_prescale_survives_as_a_setting(application, client):
    body = {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "2h", "at_least": 9}
    made = client.post("/v1/prescale", json=body)
    assert made.status_code == 201
    assert client.get("/v1/prescale").json()["windows"] == [made.json()]
    assert client.request("DELETE", f"/v1/prescale?id={made.json()['id']}").json()["state"] == "removed"
    assert client.request("DELETE", "/v1/prescale?id=x").status_code == 404
    assert client.post("/v1/prescale", json={"cron": "8 o'clock"}).status_code == 422


def gone(error):
    def away(*_args, **_kwargs):
        raise error

    return away


def test_page_and_reference_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for name in ("app.js", "charts.js", "style.css", "bokeh.js", "bokeh-api.js"):
        assert client.get(f"/page/{name}").status_code == 200, name
    assert client.get("/page/secrets.py").status_code == 404
    reference = client.get("/docs").text
    assert "GET /v1/groups/{group}/forecast" in reference
    for text in (page.text, reference):
        assert "http://" not in text
        assert "https://" not in text

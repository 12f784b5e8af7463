"""``headway serve`` as a process, seen from outside: HTTP, events, signals, restarts, and a dead broker."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import psutil

from tests.peers.service import START_S, Service, serving

PARTITIONS = 4
DAYS = 8


def write_config(folder, more=""):
    (folder / "headway.toml").write_text(
        f'state = "{folder}/state"\n[models]\npath = "{folder}/models"\n[jobs]\nact_every = "1s"\n{more}'
        '[groups.orders]\ntopics = ["orders"]\ncapacity_per_member = 10.0\nmax_replicas = 4\n'
    )


def history():
    """Eight days of a daily wave over four partitions, until the last full minute."""
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = []
    for minute in range(DAYS * 1440):
        at = end - timedelta(minutes=DAYS * 1440 - minute)
        count = int(300 + 200 * math.sin(2 * math.pi * minute / 1440))
        rows += [{"start": at.isoformat(), "partition": p, "count": count} for p in range(PARTITIONS)]
    return rows


def stores(folder):
    """Store processes that belong to a state folder."""
    return [p.pid for p in psutil.process_iter(["cmdline"]) if f"{folder}/state" in " ".join(p.info["cmdline"] or ())]


def first_event(service):
    """Open the stream of events; return it and its first event."""
    stream = urllib.request.urlopen(service.base + "/v1/events", timeout=30)
    kind, data = stream.readline().decode().strip(), stream.readline().decode().strip()
    assert kind.startswith("event: ")
    assert data.startswith("data: ")
    return stream, json.loads(data.removeprefix("data: "))


def test_a_service_lives_stops_and_carries_on(tmp_path):
    write_config(tmp_path)
    with serving(tmp_path) as service:
        service.ready()
        assert service.ask("/healthz") == (200, {"status": "alive"})
        look_at_an_empty_group(service)
        rows = history()
        pushed = {"rows": len(rows), "steps": DAYS * 1440, "partitions": PARTITIONS}
        assert service.ask("/v1/topics/orders/arrivals", "POST", {"step_s": 60, "rows": rows}) == (200, pushed)
        assert service.ask("/v1/topics/order/arrivals", "POST", {"step_s": 60, "rows": rows[:1]})[0] == 404
        seen = service.wait_for(lambda: (g := service.ask("/v1/groups/orders")[1])["hold"] is False and g)
        look_at_a_group(seen)
        look_at_what_is_read(service)
        change_things(service)
        stream, event = first_event(service)
        assert event
        with stream:
            code, seconds = service.stop()
            assert stream.read().endswith(b"\r\n")
        assert code == 0, service.said()
        assert seconds < 60
        assert stores(tmp_path) == []
        assert "ERROR" not in service.said()
        assert "Traceback" not in service.said()

    tokens = {"HEADWAY_API__READ_TOKEN": "read-it", "HEADWAY_API__WRITE_TOKEN": "write-it"}
    with serving(tmp_path, "read-it", **tokens) as service:
        service.ready()
        assert service.ask("/v1/groups/orders", token="wrong")[0] == 401
        pause = ("/v1/groups/orders/pause", "PUT", {"paused": False})
        assert service.ask(*pause)[0] == 403
        assert service.ask("/v1/groups/orders")[1]["paused"] is True
        assert service.ask(*pause, token="write-it")[0] == 200
        assert service.ask("/v1/groups/orders")[1]["mode"] == "shadow"
        look_at_the_forecast(service)
        kept = service.ask("/v1/groups/orders/decisions")[1]["decisions"]
        assert any(d["reasons"][0].startswith("hold") for d in kept)
        assert {"mode", "pause"} <= {e["action"] for e in service.ask("/v1/audit")[1]["entries"]}
        assert service.stop()[0] == 0


def look_at_an_empty_group(service):
    status, forecast = service.ask("/v1/groups/orders/forecast")
    assert (status, forecast["values"]) == (200, None)
    assert forecast["reasons"]
    assert "possible_from" in forecast
    status, unknown = service.ask("/v1/groups/order")
    assert (status, unknown["nearest"]) == (404, ["orders"])
    assert {"type", "title", "status", "detail"} <= unknown.keys()
    assert [g["group"] for g in service.ask("/v1/groups")[1]["groups"]] == ["orders"]
    status, page = service.ask("/")
    assert status == 200
    assert "Headway" in page


def look_at_a_group(group):
    assert {"state", "mode", "rung", "gate", "bound_by", "ages"} <= group.keys()
    assert group["bound_by"].keys() == {"kind", "id", "from"}
    assert {"forecast", "plan", "snapshot", "arrivals"} <= group["ages"].keys()


def look_at_what_is_read(service):
    plan = service.ask("/v1/groups/orders/plan")[1]
    assert {"steps", "bound_by", "reasons", "lower_bound"} <= plan.keys()
    assert {"from", "replicas", "demand", "assignment", "movement"} <= plan["steps"][0].keys()
    series = service.ask("/v1/groups/orders/series?name=arrivals&by=partition")[1]
    assert series["step_s"] == 60
    scaler = service.wait_for(lambda: (a := service.ask("/v1/groups/orders/scaler"))[0] == 200 and a[1])
    assert scaler["replicas"] == plan["steps"][0]["replicas"]
    assert scaler["age_s"] < 60
    assert service.ask("/v1/groups/orders/moves")[1] == {"moves": []}
    assert {j["job"] for j in service.ask("/v1/jobs")[1]["jobs"]} >= {"forecast", "act", "plan", "retrain", "seal"}
    status, text = service.ask("/metrics")
    assert status == 200
    assert 'headway_group_replicas{group="orders"' in text
    assert service.ask("/openapi.json")[0] == service.ask("/docs")[0] == 200


def change_things(service):
    before = service.ask("/v1/groups/orders/plan")[1]["replicas"]
    status, what_if = service.ask("/v1/groups/orders/plan", "POST", {"capacity": 5.0, "policy": {"slo": "30s"}})
    assert status == 200
    assert what_if["steps"]
    assert service.ask("/v1/groups/orders/plan", "POST", {"policy": {"slos": "30s"}})[0] == 422
    assert service.ask("/v1/groups/orders/plan")[1]["replicas"] == before
    status, refused = service.ask("/v1/groups/orders/mode", "PUT", {"mode": "act"})
    assert status == 409
    assert "nothing to act on" in refused["detail"]
    assert service.ask("/v1/groups/orders/mode", "PUT", {"mode": "fast"})[0] == 422
    assert service.ask("/v1/groups/orders/mode", "PUT", {"mode": "shadow"})[1]["state"] == "shadow"
    assert service.ask("/v1/groups/orders/pause", "PUT", {"for": "2h"})[1]["state"] == "paused"
    assert service.ask("/v1/groups/orders/pause", "PUT", {"for": "2"})[0] == 422
    window = {"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "duration": "2h", "at_least": 3}
    status, added = service.ask("/v1/prescale", "POST", window)
    assert status == 201
    assert len(service.ask("/v1/prescale")[1]["windows"]) == 1
    assert service.ask(f"/v1/prescale?id={added['id']}", "DELETE")[0] == 200
    assert service.ask("/v1/prescale")[1]["windows"] == []


def look_at_the_forecast(service):
    path = "/v1/groups/orders/forecast?horizon=10m&levels=.5,.95"
    forecast = service.wait_for(lambda: (f := service.ask(path)[1])["total"] and f)
    assert (forecast["step_s"], forecast["levels"]) == (60, [0.5, 0.95])
    assert len(forecast["total"]["0.5"]) == 10
    assert [p["partition"] for p in forecast["partitions"]] == list(range(PARTITIONS))
    assert all(10 < v < 40 for v in forecast["total"]["0.5"])
    assert service.ask("/v1/groups/orders/forecast?levels=.123")[0] == 422


def test_a_dead_broker_is_said_and_does_not_stop_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dead = probe.getsockname()[1]
    write_config(tmp_path, f'[kafka]\nbootstrap_servers = "127.0.0.1:{dead}"\n')
    with serving(tmp_path) as service:
        service.wait_for(lambda: service.ask("/healthz")[0] == 200)
        group = service.wait_for(lambda: (g := service.ask("/v1/groups/orders")[1])["problems"] and g)
        assert group["state"] == "attention"
        assert str(dead) in " ".join(group["problems"].values())
        assert service.ask("/v1/groups/orders/scaler")[0] == 503
        assert service.stop()[0] == 0


def test_a_port_that_is_taken_is_one_line(tmp_path):
    write_config(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = Service(tmp_path, taken.getsockname()[1])
        assert service.process.wait(START_S) == 1
    assert service.said().count("\n") == 1
    assert "choose another" in service.said()
    service.errors.close()


def test_a_dead_store_is_said_in_one_line_by_everything_but_serve_which_waits_for_it(tmp_path):
    write_config(tmp_path, '[store]\nurl = "redis://127.0.0.1:1/0"\n')
    command = [sys.executable, "-m", "headway", "job", "run", "seal", "--group", "orders"]
    done = subprocess.run([*command, "--config", str(tmp_path / "headway.toml")], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "127.0.0.1:1" in done.stderr
    with serving(tmp_path) as service:
        service.wait_for(lambda: service.ask("/healthz")[0] == 200)
        status, why = service.ask("/readyz")
        assert status == 503
        assert "127.0.0.1:1" in why["detail"]
        assert "127.0.0.1:1" in service.ask("/v1/groups/orders")[1]["problems"]["store"]
        assert service.ask("/v1/groups/orders/scaler")[0] == 503
        assert service.stop()[0] == 0
        assert "Traceback" not in service.said()

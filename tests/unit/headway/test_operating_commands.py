"""doctor, mode, pause and approve, as a user runs them, over the embedded store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headway.cli import main


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "headway.toml"
    file.write_text(
        f'state = "{tmp_path}/state"\n[models]\npath = "{tmp_path}/models"\n'
        '[groups.orders]\ntopics = ["orders"]\nmax_replicas = 4\n'
        f'[groups.bills]\ntopics = ["bills"]\nactuator = {{ kind = "process", command = ["{sys.executable}"] }}\n'
    )
    return str(file)


def run(capsys, *args):
    code = main(list(args))
    out, err = capsys.readouterr()
    return code, out, err


def test_doctor_finds_a_healthy_house_and_says_what_is_not(capsys, config, tmp_path):
    code, out, _ = run(capsys, "doctor", "--config", config, "--json")
    checks = {c["name"]: c for c in json.loads(out)["checks"]}
    assert code == 0, out
    assert set(checks["store"]) == {"name", "ok", "detail", "remedy"}
    text = (tmp_path / "headway.toml").read_text()
    (tmp_path / "headway.toml").write_text(text + '[store]\nurl = "redis://127.0.0.1:1/0"\n')
    code, out, _ = run(capsys, "doctor", "--config", config, "--json")
    store = next(c for c in json.loads(out)["checks"] if c["name"] == "store")
    assert code == 1
    assert store["ok"] is False
    assert "store.url" in store["remedy"]


def test_doctor_says_that_keda_without_a_cluster_never_acts(capsys, config, tmp_path):
    text = (tmp_path / "headway.toml").read_text()
    polled = '[groups.polled]\ntopics = ["polled"]\nactuator = { kind = "keda" }\n'
    (tmp_path / "headway.toml").write_text(text + polled)
    code, out, _ = run(capsys, "doctor", "--config", config, "--json")
    (check,) = [c for c in json.loads(out)["checks"] if not c["ok"]]
    assert (code, check["name"]) == (1, "target of polled")
    assert "kafka.bootstrap_servers" in check["remedy"]


def test_doctor_refuses_an_unknown_key_with_the_nearest(capsys, config, tmp_path):
    (tmp_path / "headway.toml").write_text("[groups.a]\ntopics=['t']\nmax_replica=3\n")
    code, _, err = run(capsys, "doctor", "--config", config)
    assert code == 1
    assert "max_replicas" in err
    assert err.count("\n") == 1


def test_the_terminal_asks_for_act_what_the_api_asks(capsys, config, tmp_path):
    text = (tmp_path / "headway.toml").read_text()
    more = '[groups.ring]\ntopics = ["ring"]\nassignment = "planned"\nactuator = { kind = "keda" }\n'
    (tmp_path / "headway.toml").write_text(text + more)
    code, _, err = run(capsys, "mode", "--group", "ring", "act", "--config", config)
    assert (code, "leases would die" in err, "gate: ring was never recorded" in err) == (1, True, True)


def test_without_a_group_every_mode_is_shown_with_its_pause(capsys, config):
    assert run(capsys, "mode", "--group", "orders", "shadow", "--config", config)[0] == 0
    assert run(capsys, "pause", "--group", "bills", "--config", config)[0] == 0
    code, out, _ = run(capsys, "mode", "--config", config, "--json")
    found = {g["group"]: (g["state"], g["pause"]) for g in json.loads(out)["groups"]}
    assert (code, found) == (
        0,
        {"bills": ("recommend", "by terminal, until lifted"), "orders": ("shadow", None)},
    )
    code, _, err = run(capsys, "mode", "off", "--config", config)
    assert (code, "--group NAME" in err) == (2, True)


def test_modes_are_kept_and_act_needs_a_target(capsys, config):
    assert json.loads(run(capsys, "mode", "--group", "orders", "--config", config, "--json")[1])["state"] == "recommend"
    assert run(capsys, "mode", "--group", "orders", "shadow", "--config", config)[0] == 0
    assert json.loads(run(capsys, "mode", "--group", "orders", "--config", config, "--json")[1])["state"] == "shadow"
    code, _, err = run(capsys, "mode", "--group", "orders", "act", "--config", config)
    assert (code, "nothing to act on" in err) == (1, True)
    code, _, err = run(capsys, "mode", "--group", "bills", "act", "--config", config)
    assert (code, "gate: bills was never recorded" in err) == (1, True)
    code, _, err = run(capsys, "mode", "--group", "order", "--config", config)
    assert (code, "did you mean orders?" in err) == (1, True)
    assert run(capsys, "mode", "--group", "orders", "maybe", "--config", config)[0] == 2
    with Path(config).open("a", encoding="utf-8") as file:  # leases would die with the store that is embedded
        file.write('[groups.parcels]\ntopics = ["parcels"]\nactuator = { kind = "keda" }\nassignment = "planned"\n')
    code, _, err = run(capsys, "mode", "--group", "parcels", "act", "--config", config)
    assert (code, "leases would die with the embedded store" in err) == (1, True), err


def test_pause_has_an_end_and_can_be_lifted(capsys, config):
    code, out, _ = run(capsys, "pause", "--all", "--for", "2h", "--config", config, "--json")
    paused = json.loads(out)
    assert (code, paused["group"], paused["state"]) == (0, "*", "paused")
    assert paused["until"].endswith("Z")
    lifted = json.loads(run(capsys, "pause", "--all", "--resume", "--config", config, "--json")[1])
    assert lifted["state"] == "running"
    assert run(capsys, "pause", "--config", config)[0] == 2
    assert run(capsys, "pause", "--all", "--for", "2", "--config", config)[0] == 2
    code, _, err = run(capsys, "pause", "--all", "--for", "0s", "--config", config)
    assert (code, "pauses nothing" in err) == (2, True)


def test_nothing_to_approve_is_said(capsys, config):
    code, _, err = run(capsys, "approve", "--group", "orders", "--config", config)
    assert (code, "no plan to approve yet" in err) == (1, True)

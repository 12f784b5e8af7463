"""headway prescale, as a user runs it, over the embedded store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from headway.cli import main


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "headway.toml"
    file.write_text(
        f'state = "{tmp_path}/state"\n[defaults]\ntimezone = "Europe/Berlin"\n[groups.orders]\ntopics = ["orders"]\n'
    )
    return str(file)


def run(capsys, *args):
    code = main(["prescale", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_add_list_remove(capsys, config):
    cron = ("add", "--group", "orders", "--cron", "0 8 * * *", "--duration", "2h", "--at-least", "9")
    code, out, err = run(capsys, *cron, "--config", config, "--json")
    assert code == 0, err
    window = json.loads(out)
    assert window["state"] == "added" and window["timezone"] == "Europe/Berlin"  # the group's zone
    soon = datetime.now(UTC) + timedelta(hours=1)
    event = ("--name", "sale", "--from", "2026-01-05T09:00:00Z", "--to", soon.isoformat(), "--factor", "2.5")
    assert run(capsys, "add", *event, "--config", config)[0] == 0
    code, out, _ = run(capsys, "list", "--config", config, "--json")
    first, second = json.loads(out)["windows"]
    assert first["id"] == window["id"] and first["next"] is not None
    assert second["active"] is True and second["factor"] == 2.5
    assert [w["group"] for w in json.loads(run(capsys, "list", "--group", "x", "--config", config, "--json")[1])["windows"]] == ["*"]  # fmt: skip # noqa: E501
    assert "sale" in run(capsys, "list", "--config", config)[1]
    code, out, _ = run(capsys, "remove", window["id"], "--config", config, "--json")
    assert (code, json.loads(out)["state"]) == (0, "removed")
    code, _, err = run(capsys, "remove", window["id"], "--config", config)
    assert code == 1 and "no window" in err
    assert len(json.loads(run(capsys, "list", "--config", config, "--json")[1])["windows"]) == 1


def test_what_cannot_be_meant_is_refused_in_one_line(capsys, config):
    for args, message in (
        (("--cron", "0 8 * *", "--duration", "2h", "--at-least", "9"), "Wrong number of fields"),
        (("--from", "2026-01-05T09:00", "--to", "2026-01-05T10:00Z", "--replicas", "2"), "must name its zone"),
        (
            (
                "--to",
                "2026-01-05T10:00Z",
            ),
            "nothing is asked for",
        ),
        (("--group", "order", "--to", "2026-01-05T10:00Z", "--replicas", "2"), "did you mean orders?"),
    ):
        code, out, err = run(capsys, "add", *args, "--config", config)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert message in err
    assert json.loads(run(capsys, "list", "--config", config, "--json")[1]) == {"windows": []}


@pytest.mark.parametrize("name", ["add", "list", "remove"])
def test_help_of_each_starts_with_an_example(capsys, name):
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert out.startswith(f"Example: headway prescale {name}")
    example = out.splitlines()[0].removeprefix("Example: ")
    assert "..." not in example and "<" not in example


def test_windows_added_at_once_are_all_kept(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from balancer.plans.memory import MemoryPlanStore
    from headway.operation.audit import Audit
    from headway.operation.operations import Operations
    from headway.wiring import utc_now

    plans = MemoryPlanStore()
    operations = [Operations(plans, Audit(tmp_path / f"audit-{n}.jsonl")) for n in range(4)]
    body = {"cron": "0 8 * * *", "timezone": "UTC", "duration": "2h", "at_least": 3}

    def add(one):
        return [one.add_prescale(body, "me", utc_now()).id for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        made = [id for ids in pool.map(add, operations) for id in ids]
    assert sorted(w.id for w in operations[0].prescales()) == sorted(made)
    assert operations[0].remove_prescale(made[0], "me", utc_now())
    assert not operations[1].remove_prescale(made[0], "me", utc_now())

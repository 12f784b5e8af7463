"""Every command of ``headway --help``, seen from outside: keys, exit codes, streams, examples, and refusals."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from headway.cli import commands, main, module_of

ROOT = Path(__file__).resolve().parents[2]
TAXI = ROOT / "data/nyc_taxi_30min.csv.gz"
TRACES = Path(os.environ.get("HEADWAY_TRACES", ROOT / "../shared/traces"))
CONFIG = '[groups.orders]\ntopics = ["orders"]\ncapacity_per_member = 10.0\nmax_replicas = 4\n'


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of one's own, with a configuration, an embedded store and a place for models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HEADWAY_MODELS__PATH", str(tmp_path / "models"))
    (tmp_path / "headway.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def run(capfd):
    """Run a command in this process; return (exit code, stdout, stderr)."""

    def call(line, *more):
        code = main([*shlex.split(line), *map(str, more)])
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def answer(run):
    """Run a command with ``--json`` and return its one document."""

    def call(line, *more):
        code, out, err = run(line, *more, "--json")
        assert code == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return call


def cut(file, rows, to):
    """Write the first rows of a trace."""
    with gzip.open(file, "rt") as source:
        to.write_text("".join(islice(source, rows + 1)))
    return to


@pytest.fixture
def taxi(tmp_path):
    """Three weeks of the taxi trace."""
    return cut(TAXI, 21 * 48, tmp_path / "taxi.csv")


@pytest.fixture
def as_recorded(taxi, answer):
    """The same as a recorded topic."""
    return answer("ingest --topic orders --input", taxi)


def test_ingest_says_what_it_took_and_takes_it_once(answer, taxi, as_recorded):
    assert as_recorded.keys() >= {"rows", "steps", "partitions", "gaps", "rejected"}
    assert (as_recorded["rows"], as_recorded["partitions"], as_recorded["rejected"]) == (21 * 48, 1, 0)
    assert answer("ingest --topic orders --input", taxi) == as_recorded


def test_forecast_of_a_file_and_of_a_topic(answer, run, taxi, as_recorded):
    for source in (f"--input {taxi}", "--topic orders"):
        found = answer(f"forecast {source} --horizon 6h --levels .5,.9 --method seasonal_naive")
        assert found.keys() >= {"origin", "step_s", "levels", "method", "reasons", "partitions", "total"}
        assert (found["step_s"], found["levels"]) == (1800, [0.5, 0.9])
        assert [p["partition"] for p in found["partitions"]] == [0]
        assert {level: len(v) for level, v in found["partitions"][0]["values"].items()} == {"0.5": 12, "0.9": 12}
        assert {level: len(v) for level, v in found["total"].items()} == {"0.5": 12, "0.9": 12}
    code, out, err = run("forecast --topic order --horizon 6h")
    assert (code, out) == (1, "")
    assert "did you mean 'orders'" in err


def test_forecast_steps_down_the_ladder_and_says_so(answer, taxi):
    found = answer("forecast --horizon 2h --step 1h --input", taxi)
    assert found["step_s"] == 3600
    assert found["method"]


def test_backtest_has_every_figure(answer, taxi):
    found = answer("backtest --horizon 24h --origins 2 --methods last_value,seasonal_naive --input", taxi)
    wanted = {"mase", "wape", "smape", "pinball", "coverage", "seconds_per_series"}
    assert found["methods"].keys() == {"last_value", "seasonal_naive"}
    for figures in found["methods"].values():
        assert figures.keys() >= wanted
        assert figures["coverage"].keys() == figures["pinball"].keys()
    assert len(found["series"]) == 1


def test_train_promotes_and_its_model_forecasts_and_goes_back(answer, run, taxi, tmp_path):
    made = answer("train --test-days 2 --method seasonal_naive --out", tmp_path / "models", "--input", taxi)
    assert made.keys() >= {"version", "promoted", "reason", "card"}
    assert made["card"]
    code, out, _ = run(f"rollback --topic {taxi.stem} --list --json")
    assert code == 0
    json.loads(out)


def test_plan_of_a_file_with_and_without_partitions(answer, taxi):
    for more in ("", "--partitions 6"):
        found = answer(f"plan --capacity 4 {more} --input", taxi)
        assert found.keys() >= {"steps", "bound_by", "reasons", "lower_bound"}
        assert found["bound_by"].keys() == {"kind", "id", "from"}
        assert found["bound_by"]["kind"] in {"partition", "key", "downstream", "max_replicas", "history", "none"}
        assert found["steps"][0].keys() >= {"from", "replicas", "demand", "assignment", "movement"}
    assert sum(len(partitions) for partitions in found["steps"][0]["assignment"].values()) == 6


def test_assign_once_and_as_a_sequence(answer, tmp_path):
    (tmp_path / "loads.csv").write_text("row,partition,load\n0,0,40\n0,1,70\n1,0,45\n1,1,60\n")
    found = answer("assign --loads loads.csv --capacity 100 --algorithm mwf --assignments out.csv")
    assert found.keys() >= {"consumers", "rscore", "lower_bound", "moved"}
    assert found["consumers"] == found["lower_bound"] == [2, 2]
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "row,partition,consumer"


def test_simulate_two_policies_and_their_decisions(answer, taxi, tmp_path):
    span = "--from 2014-10-20T00:00:00Z --to 2014-10-20T12:00:00Z"
    found = answer(f"simulate --capacity 2 {span} --policies static_peak,keda_lag --decisions d.csv --input", taxi)
    wanted = {"late_share", "p50_s", "p99_s", "p999_s", "hours", "rescales", "rescales_per_day"}
    wanted |= {"movement_rscore", "hours_vs_limit"}
    assert found["policies"].keys() == {"static_peak", "keda_lag"}
    for figures in found["policies"].values():
        assert figures.keys() >= wanted
        assert 0 <= figures["late_share"] <= 1
    assert (tmp_path / "d.csv").read_text().splitlines()[0] == "policy,timestamp,replicas"


def test_m4_on_the_official_files(answer, tmp_path):
    train, test = cut_m4("train", tmp_path), cut_m4("test", tmp_path)
    found = answer(f"m4 --train {train} --test {test}")
    assert found.keys() >= {"owa", "smape", "mase", "ms_per_series"}


def cut_m4(part, folder):
    """Take the first two series of the competition."""
    to = folder / f"m4_{part}.csv"
    with gzip.open(TRACES / f"m4_hourly_{part}.csv.gz", "rt") as source:
        to.write_text("".join(line for line in source if line.split(",")[1] in ("series", "H1", "H2")))
    return to


def test_export_and_import_give_the_same_rows(answer, as_recorded, tmp_path):
    for name in ("orders.csv.gz", "orders.parquet"):
        assert answer(f"export --topic orders --file {name}")["rows"] == as_recorded["rows"]
        assert answer(f"import --topic copy-of-{name.split('.')[1]} --file {name}")["rows"] == as_recorded["rows"]


def test_a_group_is_operated(answer, run, as_recorded):
    for name in ("forecast", "plan", "seal", "prune", "act"):
        done = answer(f"job run {name} --group orders")
        assert done.keys() >= {"job", "ok", "seconds"}
        assert (done["job"], done["ok"]) == (name, True)
    published = answer("plan --group orders")
    assert published["version"] >= 1
    live = answer("plan --group orders --live")
    assert live.keys() == published.keys() | {"estimate"}  # hours, cost and lateness of what would be done
    assert answer("plan --group orders")["version"] == published["version"]
    assert answer("approve --group orders")["state"] == "approved"
    assert answer("mode --group orders shadow")["state"] == "shadow"
    assert answer("pause --group orders --for 2h")["state"] == "paused"
    checks = answer("doctor")["checks"]
    assert {"settings", "store", "brokers", "models", "api"} <= {c["name"] for c in checks}
    assert all(c.keys() == {"name", "ok", "detail", "remedy"} for c in checks)
    code, out, err = run("job run record --group orders")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "kafka.bootstrap_servers" in err
    assert run("job run forecast")[0] == run("job run nothing --group orders")[0] == 2


@pytest.mark.parametrize("name", commands())
def test_help_starts_with_an_example_of_that_command(run, name):
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    first = out.splitlines()[0]
    assert first.startswith(f"Example: headway {name} "[:-1])
    assert first == f"Example: {import_module(module_of(name)).EXAMPLE}"


@pytest.mark.parametrize(
    "name", ["forecast", "assign", "plan", "doctor", "prescale", "rollback", "pause", "mode", "job"]
)
def test_the_example_works_as_it_stands(run, monkeypatch, home, name):
    """On a fresh checkout with a group ``orders`` where the example names one."""
    (home / "data").symlink_to(ROOT / "data")
    code, _, err = run(import_module(module_of(name)).EXAMPLE.removeprefix("headway "))
    assert code == 0, err


@pytest.mark.parametrize("name", ["move", "adopt", "release"])
def test_what_needs_brokers_says_so_in_one_line(run, name):
    code, out, err = run(import_module(module_of(name)).EXAMPLE.removeprefix("headway "))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "bootstrap_servers" in err


def test_results_go_to_stdout_and_progress_to_stderr(taxi):
    line = [sys.executable, "-m", "headway", "forecast", "--input", taxi, "--horizon", "2h", "--json"]
    done = subprocess.run([*line, "--method", "seasonal_naive"], capture_output=True, text=True, env=environ())
    assert done.returncode == 0
    assert json.loads(done.stdout)["step_s"] == 1800
    assert "step 1800 s" in done.stderr
    wrong = subprocess.run([*line, "--horizon", "soon"], capture_output=True, text=True, env=environ())
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--horizon" in wrong.stderr


def environ():
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


GOOD = ["2026-01-05T09:00:00Z,a,5", "2026-01-05T09:01:00Z,a,6", "2026-01-05T09:02:00Z,a,7"]
BAD = {
    "no single step": ([*GOOD, "2026-01-05T09:02:37Z,a,8"], "5"),
    "a repeated instant": ([*GOOD, GOOD[-1]], "5"),
    "going backwards": ([*GOOD, GOOD[0]], "5"),
    "text": ([*GOOD, "2026-01-05T09:03:00Z,a,many"], "5"),
    "negative": ([*GOOD, "2026-01-05T09:03:00Z,a,-1"], "5"),
    "not finite": ([*GOOD, "2026-01-05T09:03:00Z,a,inf"], "5"),
    "not a number": ([*GOOD, "2026-01-05T09:03:00Z,a,nan"], "5"),
    "no zone": ([*GOOD, "2026-01-05T09:03:00,a,8"], "5"),
    "a column too few": ([*GOOD, "2026-01-05T09:03:00Z,a"], "5"),
    "decimals": ([*GOOD, "2026-01-05T09:03:00Z,a,1.5"], "5"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize(
    "command", ["ingest --topic orders", "forecast --horizon 5m", "backtest --horizon 5m --origins 1"]
)
def test_a_bad_file_is_refused_with_its_line_and_changes_nothing(run, home, kind, command):
    rows, line = BAD[kind]
    if kind == "decimals" and not command.startswith("ingest"):
        return  # gauges are welcome there
    (home / "bad.csv").write_text("timestamp,series,value\n" + "\n".join(rows) + "\n")
    code, out, err = run(f"{command} --input bad.csv")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1, err
    assert f"bad.csv:{line}" in err
    assert not (home / "state").exists()


def test_unknown_things_are_refused_with_the_nearest(run, home):
    for line, hint in (
        ("plan --group order", "orders"),
        ("plan --group order --live", "orders"),
        ("job run forecast --group order", "orders"),
        ("mode --group order shadow", "orders"),
        ("ingest --topic t --input nowhere.csv", "nowhere.csv: cannot be read"),
    ):
        code, out, err = run(line)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert hint in err
    (home / "headway.toml").write_text(CONFIG + "max_replica = 3\n")
    for line in ("doctor", "serve", "job run plan --group orders", "mode --group orders"):
        code, out, err = run(line)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert "headway.toml" in err
        assert "max_replicas" in err
    assert run("frobnicate")[0] == run("forecast --frobnicate")[0] == 2


def test_a_dead_store_is_one_line(run, monkeypatch, taxi):
    monkeypatch.setenv("HEADWAY_STORE__URL", "redis://127.0.0.1:1/0")
    for line in (
        f"ingest --topic orders --input {taxi}",
        "forecast --topic orders --horizon 1h",
        "plan --group orders",
        "mode --group orders",
        "pause --all --for 2h",
        "export --topic orders --file o.csv.gz",
        "job run forecast --group orders",
        "prescale list",
    ):
        code, out, err = run(line)
        assert (code, out) == (1, ""), line
        told = [text for text in err.splitlines() if not text.startswith(str(taxi))]
        assert len(told) == 1, err
        assert "127.0.0.1:1" in told[0], err

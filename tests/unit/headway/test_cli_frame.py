"""The frame of the terminal: quick, lazy, and errors as one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import types
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from forecaster.errors import InputRefused
from headway import __version__, cli
from headway.cli.frame import run
from headway.cli.output import to_json


def command_module(function, example="headway thing --number 3"):
    module = types.ModuleType("thing")
    module.command, module.EXAMPLE = function, example
    return module


def test_help_lists_only_commands_that_are_there(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Example: headway ")
    listed = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert listed == set(cli.commands())


def test_every_listed_command_has_an_example_and_the_summary_of_the_table():
    for name, summary in cli.commands().items():
        module = cli.import_module(cli.module_of(name))
        app = getattr(module, "app", None)
        text = app.info.help if app is not None else module.command.__doc__
        assert text.strip().splitlines()[0] == summary, name
        assert module.EXAMPLE.startswith(f"headway {name}"), name


def test_help_imports_nothing_heavy():
    code = "import sys, headway.cli as c; c.main(['--help']); print(','.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split(","))
    assert not loaded & {"numpy", "pandas", "typer", "rich", "pydantic", "fastapi", "redis", "sklearn"}


def test_unknown_command_names_the_nearest(capsys):
    assert cli.main(["no-such-thing"]) == 2
    assert cli.main([]) == 2
    assert "no command 'no-such-thing'" in capsys.readouterr().err


def test_help_of_a_command_starts_with_its_example(capsys):
    def command(number: int = 3) -> None:
        """Do a thing."""

    assert run("thing", command_module(command), ["--help"]) == 0
    assert capsys.readouterr().out.startswith("Example: headway thing --number 3\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputRefused("trace.csv:7: 'x' is not a number"), "headway thing: trace.csv:7: 'x' is not a number\n"),
        (PermissionError(13, "Permission denied", "/x"), "headway thing: /x: Permission denied\n"),
        (OSError(28, "No space left on device"), "No space left on device; make room, then run it again\n"),
        (ModuleNotFoundError("no", name="bokeh.models"), "pip install 'headway[page]'"),
        (ZeroDivisionError("a\nb"), "unexpected ZeroDivisionError: a b"),
    ],
)
def test_an_error_is_one_line_and_exit_1(capsys, error, line):
    def command() -> None:
        """Do a thing."""
        raise error

    assert run("thing", command_module(command), []) == 1
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, lambda: SystemExit(130)])
def test_ctrl_c_says_what_is_left_and_is_exit_130(capsys, stop):
    def command() -> None:
        """Do a thing."""
        raise stop()

    module = command_module(command)
    assert run("thing", module, []) == 130
    assert capsys.readouterr().err == "\nheadway thing: stopped; nothing was changed\n"
    module.STOPPED = "half of it is there"
    assert run("thing", module, []) == 130
    assert capsys.readouterr().err == "\nheadway thing: stopped; half of it is there\n"


def test_ctrl_c_while_modules_are_loaded_is_no_traceback(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["mode"]) == 130
    assert capsys.readouterr().err == "\nheadway mode: stopped before it began\n"


READS = {"assign", "backtest", "doctor", "forecast", "m4", "plan", "replay-decision", "route", "simulate", "watch",
         "worker"}  # fmt: skip
"""Commands that change nothing, or (route, worker) end in order at Ctrl-C."""


def test_whatever_changes_something_says_what_ctrl_c_leaves():
    says = {name for name in cli.commands() if hasattr(cli.import_module(cli.module_of(name)), "STOPPED")}
    assert says == set(cli.commands()) - READS


def test_wrong_usage_is_exit_2(capsys):
    def command(number: int) -> None:
        """Do a thing."""

    assert run("thing", command_module(command), ["--nonsense"]) == 2
    assert capsys.readouterr().out == ""


def test_json_is_plain():
    text = to_json({"a": np.array([1, 2]), "b": np.float64(0.5), "t": datetime(2026, 1, 5, tzinfo=UTC)})
    assert json.loads(text) == {"a": [1, 2], "b": 0.5, "t": "2026-01-05T00:00:00Z"}
    with pytest.raises(ValueError, match="JSON"):
        to_json({"x": float("nan")})


def test_version_agrees_with_the_package():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert __version__ == project["version"]


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("assign --loads data/walk_loads.csv --capacity 100", "--assignments"),
        ("backtest --input data/nyc_taxi_30min.csv.gz --horizon 24h --origins 1", "--html"),
        ("export --topic orders", "--file"),
        ("init --brokers 127.0.0.1:1", "--out"),
        ("report --group orders", "--out"),
        (
            "simulate --input data/worldcup98_1min.csv.gz --capacity 100 --from 1998-06-20 --to 1998-06-21",
            "--decisions",
        ),
        ("simulate --input data/worldcup98_1min.csv.gz --capacity 100 --from 1998-06-20 --to 1998-06-21", "--report"),
    ],
)
def test_where_a_result_cannot_go_is_said_before_the_work(command, option, tmp_path, capsys):
    for place, said in ((tmp_path / "none" / "out.html", "there is no folder"), (tmp_path, "is a folder")):
        assert cli.main([*command.split(), option, str(place)]) == 2
        assert said in " ".join(capsys.readouterr().err.replace("\u2502", " ").split())


def test_a_place_that_may_not_be_written_is_said_before_the_work_a_default_one_too(tmp_path, monkeypatch, capsys):
    locked, kept, really = tmp_path / "locked", tmp_path / "kept.csv", os.access
    locked.mkdir()
    kept.touch()

    def access(path, mode):
        return really(path, mode) and not (mode == os.W_OK and Path(path) in (locked, kept))

    monkeypatch.setattr(os, "access", access)
    for place in (locked / "out.csv", kept):
        assert cli.main(["export", "--topic", "orders", "--file", str(place)]) == 2
        assert "may not be written" in capsys.readouterr().err
    monkeypatch.chdir(locked)
    assert cli.main(["report", "--group", "orders"]) == 2
    assert "headway-report-orders.html may not be written" in " ".join(capsys.readouterr().err.split())
    beside = locked.parent / "headway-report-orders.json"
    beside.mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", "--group", "orders"]) == 2
    assert "headway-report-orders.json is a folder" in " ".join(capsys.readouterr().err.split())


def test_no_broker_is_no_broker(tmp_path, capsys):
    assert cli.main(["init", "--brokers", " ", "--out", str(tmp_path / "headway.toml")]) == 2
    assert "no broker is named" in capsys.readouterr().err

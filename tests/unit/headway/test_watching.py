"""headway watch: what it shows, at several widths, and how it lives in a real terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import uvicorn
from rich.console import Console

from forecaster.forecast import NoForecast
from headway import cli
from headway.api.server import create_app
from headway.status.overview import overview
from headway.status.watching import screen
from tests.unit.headway.conftest import NOW, a_forecast, a_plan, a_snapshot


@pytest.fixture
def filled(application):
    def change(view):
        view.plan, view.snapshot, view.forecasts["orders"] = a_plan(), a_snapshot(), a_forecast()

    application.board.update("orders", "plan", change, NOW)
    why = NoForecast("bills", NOW, "1 of 24 hours is recorded", NOW + timedelta(hours=23))
    application.board.update("bills", "forecast", lambda v: v.forecasts.update(bills=why), NOW)
    return application


def shown(document, width, **more):
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(screen(document, width=width, **more))
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize("width", [60, 110, 170])
def test_it_fits_and_says_what_comes_next(filled, width):
    text = shown(overview(filled, NOW), width, selected=1)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "2 → 3 members now: q95 is 40 records/s" in " ".join(text.split())
    assert "1/2/3" in text and "bound by partition orders:1" in " ".join(text.split())


def test_not_yet_says_when_and_an_old_look_says_why(filled):
    text = " ".join(shown(overview(filled, NOW), 160, selected=0, trouble="not up to date since 9 s").split())
    assert "no forecast yet: 1 of 24 hours is recorded; possible from Tue 6 Jan 08:00" in text
    assert "not up to date since 9 s" in text


def test_no_group_says_what_to_do(application):
    for name in application.board.names:
        application.board.remove(name)
    assert "headway init" in shown(overview(application, NOW), 100)


def test_no_server_is_one_line_with_the_remedy(capsys):
    assert cli.main(["watch", "--url", "http://127.0.0.1:9", "--once"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "start headway serve or headway demo" in error


@pytest.fixture
def url(filled):
    config = uvicorn.Config(create_app(filled), host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.02)
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(60)


def test_a_pipe_gets_one_look_and_json_the_document(url, capsys):
    assert cli.main(["watch", "--url", url]) == 0
    assert "orders" in capsys.readouterr().out
    assert cli.main(["watch", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["group"]


def test_on_a_terminal_it_lives_hears_keys_and_leaves_it_as_it_was(url):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headway", "watch", "--url", url, "--every", "200ms"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "30"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
    os.close(theirs)
    seen = b""

    def until(pattern):
        nonlocal seen
        deadline = time.monotonic() + 60
        while not re.search(pattern, seen):
            assert time.monotonic() < deadline, seen[-500:]
            if select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 65536)

    try:
        until(rb"1/2/3")
        seen = b""
        os.write(ours, b"j")
        until(rb"bound by partition|no forecast yet")
        os.write(ours, b"q")
        until(rb"\x1b\[\?1049l")  # the screen that was there before comes back
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)

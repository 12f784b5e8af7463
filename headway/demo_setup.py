"""What the demo stands on: its trace, its settings, its folder, and the server beside it."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from forecaster.ingest.trace import read_trace
from forecaster.shipped_files import CHECKOUT, shipped_folder
from headway.api.listening import Server
from headway.api.server import create_app
from headway.application import Application
from headway.configuration.settings import Settings, load
from headway.demo import TOPIC, Replay, Scene, make_scene
from headway.errors import HeadwayError
from headway.wiring import make_state_folder, open_application, open_forecasts

SAMPLE = "worldcup98_1min.csv.gz"
ZONE = "Europe/Paris"


def sample_file() -> Path:
    """Return the sample trace: of a checkout, or of the installed package.

    Raises
    ------
    HeadwayError
        If neither is there.
    """
    for folder in (CHECKOUT / "data", shipped_folder("data")):
        if folder is not None and (folder / SAMPLE).exists():
            return folder / SAMPLE
    raise HeadwayError(f"data/{SAMPLE} is not there; run from a checkout, or give --trace FILE")


def read_scene(trace: Path | None) -> Scene:
    """Read the trace and cut it into history and replay.

    Raises
    ------
    InputRefused
        If the file cannot be used.
    HeadwayError
        If it is too short.
    """
    series = read_trace(trace or sample_file(), timezone=ZONE if trace is None else "UTC")
    try:
        return make_scene(series)
    except ValueError as error:
        raise HeadwayError(f"{trace or SAMPLE}: {error}") from error


def demo_settings(scene: Scene, port: int) -> Settings:
    """Return the demo's settings: one group, a folder of its own, page and API on loopback."""
    world = scene.world
    state = load(None).state_folder / "demo"
    group = {
        "topics": (TOPIC,),
        "mode": "act",
        "timezone": scene.series.grid.timezone,
        "step": timedelta(seconds=scene.series.grid.step_s),
        "capacity_per_member": world.capacity,
        "start_time": timedelta(seconds=world.start_s),
        "pause": timedelta(seconds=world.pause_s),
        "slo": timedelta(seconds=world.slo_s),
        "max_replicas": world.max_replicas,
        "cap_at_partitions": False,
    }
    chosen = port if port == 0 or _is_free(port) else 0
    return Settings.model_validate(
        {
            "cluster": "demo",
            "state": state,
            "models": {"path": state / "models"},
            "api": {"port": chosen or _free_port()},
            "groups": {TOPIC: group},
        }
    )


@contextmanager
def running(settings: Settings, scene: Scene) -> Iterator[Replay]:
    """Provide a replay over the demo's own embedded store.

    Raises
    ------
    HeadwayError
        If another demo runs over the same folder.
    """
    folder = make_state_folder(settings)
    handle = os.open(folder / "demo.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeadwayError(
                f"another demo runs over {folder}; end it, or set HEADWAY_STATE to another folder"
            ) from None
        at = [scene.world.start]
        with open_application(settings, lambda: at[0]) as app:
            replay = Replay(app, scene, open_forecasts(settings, app.store), at)
            app.what_if = replay.what_if
            yield replay
    finally:
        os.close(handle)


@contextmanager
def served(app: Application, settings: Settings) -> Iterator[str]:
    """Serve page and API from a thread for as long as the block lasts; provide the URL."""
    host, port = settings.api.host, settings.api.port
    server = Server(create_app(app), settings.api)
    thread = threading.Thread(target=server.run, name="headway-http", daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    if not server.started:
        raise HeadwayError(f"port {port} of {host} cannot be served; choose another with --port")
    try:
        yield f"http://{host}:{port}/"
    finally:
        server.should_exit = True
        thread.join(5)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

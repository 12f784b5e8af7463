"""Several ``headway serve`` over one store, as processes: a leader that is killed, and a rolling upgrade."""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from forecaster.stores.embedded_process import find_binary
from tests.peers.redis import Server
from tests.peers.service import serving

pytestmark = pytest.mark.slow

TICK_S, LEASE_TICKS = 2, 2
LEASE = timedelta(seconds=LEASE_TICKS * TICK_S)
ELSEWHERE = "another instance leads"
GRACE = timedelta(seconds=1)
"""Between the instant that a tick notes and that of its renewal in the store, on a busy machine."""


def write_config(folder, store):
    folder.mkdir()
    (folder / "headway.toml").write_text(
        f'state = "{folder}/state"\n[store]\nurl = "{store.url}"\n[models]\npath = "{folder}/models"\n'
        f'[jobs]\nact_every = "{TICK_S}s"\n'
        '[groups.orders]\ntopics = ["orders"]\ncapacity_per_member = 10.0\nmax_replicas = 9\n'
    )
    return folder


def push(service):
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = [
        {"start": (end - timedelta(minutes=m)).isoformat(), "partition": p, "count": 450}
        for m in range(1, 90)
        for p in range(4)
    ]
    assert service.ask("/v1/topics/orders/arrivals", "POST", {"step_s": 60, "rows": rows})[0] == 200


def last_run(service):
    """Return the last run of the group's job ``act``: when it began, and whether it led; None before the first."""
    jobs = service.ask("/v1/jobs")[1]["jobs"]
    (act,) = [j for j in jobs if (j["job"], j["group"]) == ("act", "orders")]
    if act["last"] is None:
        return None
    led = act["last"]["ok"] and not act["last"]["detail"].startswith(ELSEWHERE)
    return datetime.fromisoformat(act["last"]["started"]), led


def leads(service):
    """Whether this instance made the group's last tick."""
    run = last_run(service)
    return run is not None and run[1]


class Runs:
    """Every run of an instance's job ``act`` while the block lasts: seconds would tell of the machine as well."""

    def __init__(self, service):
        self._service, self._stop, self._seen = service, threading.Event(), {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._stop.wait(0.1):
            with contextlib.suppress(OSError):
                if (run := last_run(self._service)) is not None:
                    self._seen[run[0]] = run[1]

    def begun_after(self, at):
        """Return of each run that began after an instant whether it led."""
        return [led for began, led in sorted(self._seen.items()) if began > at]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(10)


def ticks(service, since):
    """Return when the group's ticks were, whoever made them."""
    found = service.ask(f"/v1/groups/orders/decisions?since={since.strftime('%Y-%m-%dT%H:%M:%SZ')}")[1]["decisions"]
    return [datetime.fromisoformat(d["at"]) for d in found]


def test_a_killed_leader_is_followed_and_an_upgrade_leaves_no_gap(tmp_path):
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Server(find_binary(), tmp_path / "store"))
        folders = [write_config(tmp_path / name, store) for name in ("a", "b", "c")]
        first, second = (stack.enter_context(serving(f)) for f in folders[:2])
        first.ready()
        second.ready()
        push(first)
        first.wait_for(lambda: leads(first) != leads(second))
        leader, follower = (first, second) if leads(first) else (second, first)
        began = datetime.now(UTC)
        time.sleep(2 * TICK_S)
        assert not leads(follower)

        # killed: nothing is given back, so the lease must run out
        with Runs(follower) as runs:
            leader.process.kill()
            killed = datetime.now(UTC)
            renewed = max(at for at in ticks(follower, began) if at <= killed)
            follower.wait_for(lambda: runs.begun_after(renewed + LEASE + GRACE), 60)
        assert all(runs.begun_after(renewed + LEASE + GRACE))  # the first look after the lease takes over
        assert not any(runs.begun_after(renewed)[:1])  # and none before

        # upgraded: a new one stands by, the old one gives its lead back, and no tick is missed
        third = stack.enter_context(serving(folders[2]))
        third.ready()
        assert not leads(third)
        with Runs(third) as runs:
            assert follower.stop()[0] == 0
            given_back = datetime.now(UTC)
            third.wait_for(lambda: len(runs.begun_after(given_back)) >= 2, 60)
        assert all(runs.begun_after(given_back))
        assert third.ask("/v1/groups/orders/plan")[1]["replicas"] >= 3  # 30 records/s at 10 a member
        for service in (follower, third):
            assert "Traceback" not in service.said()

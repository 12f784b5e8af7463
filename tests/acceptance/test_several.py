"""Several ``headway serve`` over one store, as processes: a leader that is killed, and a rolling upgrade."""

from __future__ import annotations

import contextlib
import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest

from forecaster.stores.embedded_process import find_binary
from tests.peers.redis import Server
from tests.peers.service import serving

pytestmark = pytest.mark.slow

TICK_S, LEASE_TICKS = 2, 2
ELSEWHERE = "another instance leads"


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


def leads(service):
    """Whether this instance made the group's last tick."""
    jobs = service.ask("/v1/jobs")[1]["jobs"]
    (act,) = [j for j in jobs if (j["job"], j["group"]) == ("act", "orders")]
    return act["last"] is not None and act["last"]["ok"] and not act["last"]["detail"].startswith(ELSEWHERE)


def ticks(service, since):
    """Return when the group's ticks were, whoever made them."""
    found = service.ask(f"/v1/groups/orders/decisions?since={since.strftime('%Y-%m-%dT%H:%M:%SZ')}")[1]["decisions"]
    return [datetime.fromisoformat(d["at"]) for d in found]


def longest_gap_s(at):
    return max((b - a).total_seconds() for a, b in itertools.pairwise(at))


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
        leader.process.kill()
        killed = datetime.now(UTC)
        follower.wait_for(lambda: leads(follower), 20)
        after = [at for at in ticks(follower, began) if at > killed]
        waited = (after[0] - killed).total_seconds()
        assert waited <= (LEASE_TICKS + 1) * TICK_S + 0.5

        # upgraded: a new one stands by, the old one gives its lead back, and no tick is missed
        third = stack.enter_context(serving(folders[2]))
        third.ready()
        assert not leads(third)
        upgraded = datetime.now(UTC)
        time.sleep(TICK_S)
        assert follower.stop()[0] == 0
        third.wait_for(lambda: leads(third), 20)
        time.sleep(2 * TICK_S)
        assert longest_gap_s([at for at in ticks(third, upgraded) if at >= upgraded]) <= 2 * TICK_S + 0.5
        assert third.ask("/v1/groups/orders/plan")[1]["replicas"] >= 3  # 30 records/s at 10 a member
        for service in (follower, third):
            assert "Traceback" not in service.said()

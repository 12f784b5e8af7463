from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from balancer.moves.splitting import TopicLeader
from balancer.routing.base import SplitRequest
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from headway.consumers import split_alarms
from headway.consumers.split_alarms import SplitAlarms
from headway.status.board import Board
from headway.status.group_metrics import GroupMetrics
from headway.status.metrics import Metrics
from tests.unit.balancer.moves.routed_world import MemoryWorld


class Timer:
    """A timer that goes off when the test says so."""

    made: list[Timer]

    def __init__(self, seconds: float, then: Any, args: list[Any]) -> None:
        self.seconds, self._then, self._args, self.cancelled = seconds, then, args, False
        self.made.append(self)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True

    def go_off(self) -> None:
        self._then(*self._args)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    Timer.made = []
    monkeypatch.setattr(split_alarms.threading, "Timer", Timer)
    return Timer.made


def test_an_alarm_is_a_problem_of_every_group_for_a_day(timers: list[Timer]) -> None:
    board = Board()
    views = [board.add(g, ("orders",)) for g in ("billing", "mails", "other")]
    alarms = SplitAlarms(board, "orders", ["billing", "mails", "not on this board"])
    alarms("records are lost")
    alarms("retention has passed")
    alarms("records are lost")
    assert [t.seconds for t in timers] == [86_400, 86_400]
    said = {"splits of orders": "retention has passed; records are lost"}
    assert [v.problems for v in views] == [said, said, {}] and views[0].state == "attention"
    timers[0].go_off()
    assert views[0].problems == views[1].problems == {"splits of orders": "retention has passed"}
    timers[1].go_off()
    assert all(not v.problems for v in views)


def test_topics_of_a_group_do_not_hide_each_others_alarms_and_nothing_runs_on_when_it_is_closed() -> None:
    board = Board()
    view = board.add("billing", ("orders", "mails"))
    threads = threading.active_count()
    both = [SplitAlarms(board, topic, ["billing"]) for topic in view.topics]
    for one in both:
        one("look")
    assert view.problems == {"splits of orders": "look", "splits of mails": "look"}
    for one in both:
        one.close()
    for thread in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
        thread.join(60)
    assert threading.active_count() == threads


def test_what_a_leader_finds_reaches_page_and_metrics(timers: list[Timer]) -> None:
    board = Board()
    view = board.add("g0", ("orders",))
    world, store, log = MemoryWorld(), MemoryRouteStore(), MemoryTableLog()
    first = TopicLeader(world, log, store, ["g0"], "crc32")
    first.step()
    store.request(SplitRequest("r1", "orders", 0, "split", 2))
    first.step()
    first.stop()
    world.id = "made anew"
    leader = TopicLeader(world, log, store, ["g0"], "crc32", holder="second")
    leader.on_alarm = SplitAlarms(board, "orders", ["g0"])
    leader.step()
    (said,) = leader.alarms
    assert "created again" in said and view.problems == {"splits of orders": said}
    text = Metrics().text(GroupMetrics(board, datetime(2026, 1, 5, tzinfo=UTC))).decode()
    assert 'headway_group_problem{group="g0",input="splits of orders"} 1.0' in text

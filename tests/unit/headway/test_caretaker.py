"""What serve does for a planned group beside its mover: follow the plan, or say why not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from balancer.plan import Bound, PlannedStep, ScalingPlan
from forecaster.topics import GroupId, TopicPartition
from headway.consumers.moving import Caretaker

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def made(*, hold: bool = False, **owned: tuple[TopicPartition, ...]) -> ScalingPlan:
    assignment = {f"{name[1:]}#1.aa": partitions for name, partitions in owned.items()} or None
    step = PlannedStep(NOW, 2, 10.0, assignment)
    return ScalingPlan(GroupId("orders"), NOW, (step,), Bound(), ("because",), hold=hold)


@dataclass
class Mover:
    token: object | None = "token"
    paused: str | None = None
    followed: list[dict[TopicPartition, int]] = field(default_factory=list)

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def follow(self, owners: dict[TopicPartition, int], reasons: Any) -> int:
        self.followed.append(owners)
        return len(self.followed)


class Stage:
    def __init__(self) -> None:
        self.mover, self.told = Mover(), []
        self.ticks = 0
        self.duties = SimpleNamespace(alarm=None, tick=self._tick)
        self.plan: tuple[int, ScalingPlan] | None = None
        self.off: str | None = None
        self.closed: tuple[str, ...] = ()
        self.looks = threading.Semaphore(0)
        store = SimpleNamespace(view=lambda: None)
        parts: Any = SimpleNamespace(
            mover=self.mover, duties=self.duties, store=store, source=SimpleNamespace(group="orders")
        )
        self.caretaker = Caretaker(
            parts, self._published, lambda: self.off, lambda: self.closed, self.told.append, 0.0, 0.001, 0.0
        )

    def _tick(self, token: object, view: object) -> None:
        self.ticks += 1
        self.looks.release()

    def _published(self) -> tuple[int, ScalingPlan] | None:
        return self.plan

    def look(self, times: int = 3) -> None:
        for _ in range(times):
            assert self.looks.acquire(timeout=60)

    def __enter__(self) -> Stage:
        self.caretaker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.caretaker.stop()


def wait(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_each_published_plan_is_followed_once() -> None:
    with Stage() as stage:
        stage.plan = (7, made(m1=(P0,), m2=(P1,)))
        wait(lambda: stage.mover.followed)
        stage.look()
        assert stage.mover.followed == [{P0: 1, P1: 2}]
        stage.plan = (8, made(m1=(), m2=(P0, P1)))
        wait(lambda: len(stage.mover.followed) == 2)
        assert stage.mover.followed[1] == {P0: 2, P1: 2}


def test_a_plan_that_holds_or_says_nothing_of_owners_moves_nothing() -> None:
    with Stage() as stage:
        for plan in (made(hold=True, m1=(P0,)), made()):
            stage.plan = (7, plan)
            stage.look()
        assert stage.mover.followed == []


def test_nothing_is_followed_while_a_stranger_is_there_or_the_mode_is_off() -> None:
    with Stage() as stage:
        stage.duties.alarm = "1 foreign member"
        stage.plan = (7, made(m1=(P0,)))
        wait(lambda: stage.mover.paused == "1 foreign member")
        assert "1 foreign member" in stage.told
        stage.duties.alarm, stage.off = None, "mode is off"
        wait(lambda: stage.mover.paused == "mode is off")
        assert stage.mover.followed == []
        stage.off = None
        wait(lambda: stage.mover.followed)
        assert stage.told[-1] is None


def test_a_closed_gate_is_told_and_asked_again() -> None:
    with Stage() as stage:
        stage.closed = ("__transaction_state has 1 copy (…)",)
        stage.plan = (7, made(m1=(P0,)))
        wait(lambda: "__transaction_state has 1 copy (…)" in stage.told)
        assert stage.mover.followed == []


def test_who_does_not_lead_the_leases_follows_nothing_and_begins_anew_when_it_does() -> None:
    with Stage() as stage:
        stage.plan = (7, made(m1=(P0,)))
        wait(lambda: stage.mover.followed)
        stage.mover.token = None
        wait(lambda: stage.caretaker._followed is None)
        assert len(stage.mover.followed) == 1
        stage.mover.token = "another"
        wait(lambda: len(stage.mover.followed) == 2)


def test_brokers_that_are_away_are_said_once_as_their_state_and_it_goes_on(capsys: Any) -> None:
    import confluent_kafka as ck

    with Stage() as stage:
        tick = stage.duties.tick

        def silent(token: object, view: object) -> None:
            tick(token, view)
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "no answer"))

        stage.duties.tick = silent
        wait(lambda: any(why is not None for why in stage.told))
        stage.look(5)
        said = [why for why in stage.told if why is not None]
        assert said == ["the brokers do not answer (_TIMED_OUT: no answer); what is there is held and asked for again"]
        stage.duties.tick, stage.plan = tick, (7, made(m1=(P0,)))
        wait(lambda: stage.told[-1] is None and stage.mover.followed)
    logged = capsys.readouterr().err
    assert "fault of ours" not in logged

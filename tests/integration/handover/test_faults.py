"""Workers, planners and stores that die, freeze or forget, as real processes under load."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest

from balancer.leases.base import EPOCH_LEAP
from balancer.moves.machine import MoveState
from forecaster.topics import TopicPartition
from tests.chaos.bed import Bed, until
from tests.chaos.rows import owner_changes
from tests.peers.kafka import Kafka

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves a bootstrap socket to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def bed(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Bed]:
    name = request.node.name.removeprefix("test_")[:30].replace("_", "-")
    # Where a life is to last, a machine that stands still for seconds must not end it.
    ttl = 20.0 if name in ("moves-under-load", "sigterm-drains-and-exits-befor") else 4.0
    with Bed(name, kafka=kafka, partitions=6, rate=300, durable=True, lease_ttl=ttl) as made:
        made.start_team(1, 2, inside="planner" not in request.node.name)
        yield made


def test_moves_under_load(bed: Bed) -> None:
    rnd = random.Random(7)
    bed.passes()  # each partition has had a record by its first owner: a change is from one to another
    for _ in range(12):
        p = rnd.randrange(bed.partitions)
        move = bed.mover.move(TopicPartition(bed.input, p), 3 - (bed.owner(p) or 1))
        until(lambda move=move: bed.mover.state_of(move).is_over, 120, bed.logs)
        assert bed.mover.state_of(move).state is MoveState.DONE
        bed.passes(p)  # else the partition could move on before its new owner had a record: nothing to judge
    workers = bed.view().workers
    rows, verdict = bed.finish()
    assert verdict.is_clean, verdict
    changes = [c for c in owner_changes(rows) if c.source != c.target]
    assert len(changes) >= 12
    assert {w.owner.number for w in workers.values()} == {1}  # handed over in order: nobody had to be fenced
    # how fast is the benchmark's to say


def test_sigterm_drains_and_exits_before_anything_expires(bed: Bed) -> None:
    assert bed.end("w1") == 0
    bed.settled(2)
    _, verdict = bed.finish()
    assert verdict.is_clean, verdict
    assert "is fenced" not in bed.log("w2")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_k32_k37_k45_a_dead_or_frozen_worker_is_fenced_and_its_partitions_served_again(
    bed: Bed, how: signal.Signals
) -> None:
    worker = bed.processes["w1"]
    worker.send_signal(how)
    until(lambda: _revive(bed, 2) or _owns_all(bed, 2), 120, bed.logs)
    if how is signal.SIGSTOP:
        time.sleep(0.5)
        worker.send_signal(signal.SIGCONT)
        assert worker.wait(120) == 3  # it found out before it committed anything
    else:
        worker.wait()
    del bed.processes["w1"]
    bed.worker("w1b", 1)
    bed.lives(1, 2)
    bed.mover.follow({TopicPartition(bed.input, p): 2 - p % 2 for p in range(bed.partitions)})
    wanted = {p: 2 - p % 2 for p in range(bed.partitions)}
    until(lambda: _revive(bed, 2) or bed.owners() == wanted, 120, bed.logs)
    _, verdict = bed.finish(tend=lambda: _revive(bed, 2))
    assert verdict.is_clean, verdict


def test_planner_is_killed_while_a_worker_dies_and_another_leads(bed: Bed) -> None:
    bed.kill("planner")
    bed.kill("w1")
    bed.start_planner("planner-2", inside=False)
    until(lambda: _revive(bed, 2) or _owns_all(bed, 2), 120, bed.logs)
    _, verdict = bed.finish(tend=lambda: _revive(bed, 2))
    assert verdict.is_clean, verdict


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "emptied"])
def test_store_restarts_and_everybody_is_fenced_before_anybody_takes(bed: Bed, kept: bool) -> None:
    before = max(lease.epoch for lease in bed.view().leases.values())
    bed.server.kill()
    if not kept:
        bed.server.empty()
    time.sleep(1)
    bed.server.start()
    restarted = set()

    def tend() -> None:  # as an orchestrator would
        for i in (1, 2):
            process = bed.processes[f"w{i}"]
            if process.poll() is not None:
                assert process.returncode == 3
                restarted.add(i)
                bed.worker(f"w{i}", i)

    until(lambda: tend() or len(restarted) == 2, 120, bed.logs)
    bed.ready(1, 2, tend=tend)
    bed.settled(1, 2, tend=tend)
    assert min(lease.epoch for lease in bed.view().leases.values()) > before + EPOCH_LEAP
    _, verdict = bed.finish(tend=tend)
    assert verdict.is_clean, verdict


def test_a_silent_store_stops_nobody(bed: Bed) -> None:
    bed.server.pause()
    time.sleep(5)  # well over the lease time
    bed.passes()  # of every partition, while the store is silent still
    bed.server.resume()
    _, verdict = bed.finish(tend=lambda: _revive(bed, 1, 2))
    assert verdict.is_clean, verdict


def _owns_all(bed: Bed, instance: int) -> bool:
    return bed.owners() == dict.fromkeys(range(bed.partitions), instance)


def _revive(bed: Bed, *instances: int) -> None:
    """Do what an orchestrator does."""
    for i in instances:
        if bed.processes[f"w{i}"].poll() is not None:
            bed.worker(f"w{i}", i)

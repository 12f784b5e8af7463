"""What a group protocol does for its members, done for planned groups: each Kafka pitfall by its id."""

from __future__ import annotations

import time
from datetime import timedelta

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import OffsetSpec

from balancer.consumer import StartAt, WorkerSettings
from balancer.consumer.kafka import DataConsumer
from balancer.leases.base import EPOCH_LEAP, Owner, StartRule, transactional_id
from balancer.leases.notes import commit_metadata
from balancer.moves.bulk_client import busy_places, coordinator_partition
from balancer.moves.kafka import OFFSETS, BrokersSilent, FenceFailed, PlannedGroup
from forecaster.topics import TopicPartition
from tests.integration.handover.pool import QUIET, Pool, echo
from tests.peers.kafka import Kafka

pytestmark = [
    pytest.mark.kafka,
    # kafka-python leaves a bootstrap socket to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def tick(pool: Pool) -> None:
    token = pool.mover.token
    assert token is not None
    pool.duties.tick(token, pool.store.view())
    pool.mover.paused = pool.duties.alarm


def test_k19_new_partitions_start_at_log_start_whatever_the_policy(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.plan()
    pool.ready(pool.worker(echo, start_at=StartAt.LATEST))
    pool.grow(3)
    pool.write(["a", "b"], 2)  # before anybody knows of it
    tick(pool)
    assert [v for values in pool.read(2).values() for v in values] == ["a", "b"]
    lease = pool.store.view().leases[TopicPartition(pool.topic, 2)]
    assert lease.start is StartRule.BEGINNING


def test_k15_k22_a_topic_created_again_is_read_from_its_start_and_old_offsets_are_not_committed(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write([f"old{i}" for i in range(50)])
    pool.plan()
    pool.worker(echo)
    pool.wait(lambda: pool.committed(0) == 50)
    pool.delete(pool.topic)
    pool.create(pool.topic, partitions=1)
    pool.write([f"new{i}" for i in range(60)])
    tick(pool)
    found = pool.read(110)
    values = [v for part in found.values() for v in part]
    assert sorted(v for v in values if v.startswith("new")) == sorted(f"new{i}" for i in range(60))
    pool.wait(lambda: pool.committed(0) == 60)


def test_a_deleted_topic_is_dropped_when_a_second_look_agrees(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.plan()
    worker = pool.worker(echo)
    pool.wait(lambda: pool.owner(0) == 1)
    pool.delete(pool.topic)
    tick(pool)
    assert pool.store.view().leases
    tick(pool)
    pool.wait(lambda: not pool.store.view().leases)
    time.sleep(1.0)
    assert worker.error is None


def test_k20_k21_out_of_range_is_decided_here_and_the_gap_is_counted(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write([f"v{i}" for i in range(30)])
    pool.commit_plainly(0, 5)
    for future in pool.admin.delete_records([ck.TopicPartition(pool.topic, 0, 20)]).values():
        future.result(60)
    pool.plan()
    worker = pool.worker(echo)
    assert [v for part in pool.read(10).values() for v in part] == [f"v{i}" for i in range(20, 30)]
    assert worker.consumer._pulse.skipped == 15  # K2, K16: what retention took is a gap, not lag
    pool.wait(lambda: pool.committed(0) == 30)


def test_an_offset_beyond_the_end_waits_for_the_planner_and_then_goes_on_at_the_end(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write(["a", "b"])
    pool.commit_plainly(0, 500)
    pool.plan()
    pool.worker(echo, lease_ttl=timedelta(seconds=3))
    pool.wait(lambda: pool.committed(0) == 2)
    pool.write(["c"])
    assert [v for part in pool.read(1).values() for v in part] == ["c"]


def test_held_offsets_are_committed_again_without_traffic(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write(["a"])
    pool.plan()
    pool.ready(pool.worker(echo, recommit_every=timedelta(seconds=0.5)))
    pool.wait(lambda: pool.committed(0) == 1)
    pool.forget_offset(0)
    pool.wait(lambda: pool.committed(0) == 1)


def test_a_foreign_member_is_an_alarm_and_nothing_moves_while_it_is_there(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=2)
    pool.plan()
    pool.ready(pool.worker(echo), pool.worker(echo))
    pool.wait(lambda: {pool.owner(0), pool.owner(1)} <= {1, 2} and None not in (pool.owner(0), pool.owner(1)))
    stranger = ck.Consumer(
        {"bootstrap.servers": pool.bootstrap, "group.id": pool.group, "client.id": "legacy", **QUIET}
    )
    stranger.subscribe([pool.topic])
    pool.wait(lambda: stranger.poll(0.05) is None and bool(stranger.assignment()))
    tick(pool)
    assert pool.duties.alarm is not None
    assert "1 foreign members" in pool.duties.alarm
    assert "legacy" in pool.duties.alarm
    before = pool.owner(0)
    pool.mover.move(TopicPartition(pool.topic, 0), 3 - (before or 1))
    time.sleep(1)
    assert pool.owner(0) == before
    stranger.unsubscribe()
    stranger.close()
    pool.wait(lambda: not pool.source.members())
    tick(pool)
    pool.wait(lambda: pool.owner(0) == 3 - (before or 1))


def test_l1_founding_fences_ids_that_only_the_broker_knows_and_leaps_over_epochs_seen(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    zombie = ck.Producer(
        {"bootstrap.servers": pool.bootstrap, "transactional.id": transactional_id(pool.group, 5), **QUIET}
    )
    zombie.init_transactions(60)
    zombie.begin_transaction()
    zombie.produce(pool.out, b"from before", partition=0)
    zombie.flush(10)
    pool.commit_plainly(0, 0, commit_metadata(Owner(9, 4, "old"), 77))
    pool.plan()
    pool.wait(lambda: not pool.store.is_lost())
    with pytest.raises(ck.KafkaException, match=r"(?i)fenced"):
        zombie.commit_transaction(10)
    pool.write(["a"])
    pool.worker(echo)
    pool.wait(lambda: pool.committed(0) == 1)
    note = pool.source.commits()[TopicPartition(pool.topic, 0)].note
    assert note is not None
    assert note.epoch == 77 + EPOCH_LEAP + 1
    assert pool.read(1) == {0: ["a"]}


def test_k24_commits_carry_the_leader_epoch(pool: Pool) -> None:
    pool.create(pool.topic, pool.out, partitions=1)
    pool.write(["a"])
    pool.plan()
    pool.worker(echo)
    pool.wait(lambda: pool.committed(0) == 1)
    reader = ck.Consumer({"bootstrap.servers": pool.bootstrap, "group.id": pool.group, **QUIET})
    committed = reader.committed([ck.TopicPartition(pool.topic, 0)], timeout=10)[0]
    end = pool.admin.list_offsets({ck.TopicPartition(pool.topic, 0): OffsetSpec.latest()})
    assert committed.leader_epoch == next(iter(end.values())).result().leader_epoch
    reader.close()


def test_adopt_and_release_move_a_running_group_there_and_back(pool: Pool) -> None:
    from headway.consumers.adoption import adopt, release
    from headway.consumers.moving import PlannedGroupParts

    parts = PlannedGroupParts(pool.mover, pool.duties, pool.source, pool.store)
    pool.create(pool.topic, pool.out, partitions=2)
    pool.write([f"a{i}" for i in range(20)], 0)
    ordinary = pool.ordinary("legacy-1")
    got = pool.drain_ordinary(ordinary, 20)
    rehearsal = adopt(parts, dry_run=True, within_s=1)
    assert rehearsal.state == "dry_run"
    assert any("legacy-1" in s.detail for s in rehearsal.steps)
    pool.plan()
    assert adopt(parts, dry_run=False, within_s=1).state == "waiting"
    ordinary.close()
    pool.write([f"b{i}" for i in range(20)], 0)
    outcome = adopt(parts, dry_run=False, within_s=120)
    assert outcome.state == "adopted", outcome
    worker = pool.worker(echo)
    got += [v for part in pool.read(20).values() for v in part]
    assert release(parts, dry_run=True, within_s=1).state == "dry_run"
    assert release(parts, dry_run=False, within_s=120).state == "released"
    worker.stop()
    pool.write([f"c{i}" for i in range(20)], 0)
    again = pool.ordinary("legacy-2")
    got += pool.drain_ordinary(again, 20)
    again.close()
    assert sorted(got) == sorted([f"{x}{i}" for x in "abc" for i in range(20)])


@pytest.mark.parametrize("group", ["orders", "billing", "payments"])  # hashes below zero, and above
def test_the_partition_that_keeps_a_group_is_the_one_that_brokers_write(pool: Pool, group: str) -> None:
    pool.create(pool.topic, partitions=1)
    reader = ck.Consumer({"bootstrap.servers": pool.bootstrap, "group.id": group})
    writer = ck.Producer({"bootstrap.servers": pool.bootstrap, "transactional.id": f"{pool.group}-{group}"})
    writer.init_transactions(60)
    writer.begin_transaction()
    rows = [ck.TopicPartition(pool.topic, 0, 9)]
    writer.send_offsets_to_transaction(rows, reader.consumer_group_metadata(), 60)
    count = len(pool.admin.list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions)
    places = busy_places({"bootstrap.servers": pool.bootstrap}, OFFSETS, timedelta(seconds=30))
    assert coordinator_partition(group, count) in places  # beside those of lives that other tests have killed
    writer.abort_transaction(60)
    reader.close()


def test_offsets_that_a_transaction_holds_back_are_waited_for_only_while_it_is_under_way(
    kafka: Kafka, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.create(pool.topic, partitions=1)
    where = TopicPartition(pool.topic, 0)
    reader = ck.Consumer({"bootstrap.servers": pool.bootstrap, "group.id": pool.group, "enable.auto.commit": False})
    reader.commit(offsets=[ck.TopicPartition(pool.topic, 0, 5)], asynchronous=False)
    other = ck.Producer({"bootstrap.servers": pool.bootstrap, "transactional.id": f"{pool.group}-somebody"})
    other.init_transactions(60)
    other.begin_transaction()
    rows, group = [ck.TopicPartition(pool.topic, 0, 9)], reader.consumer_group_metadata()
    other.send_offsets_to_transaction(rows, group, 60)
    pool.source.stable_s = 1.0
    with pytest.raises(ck.KafkaException):  # it may still commit: nothing is founded on what it would change
        pool.source.commits()
    # a transaction that nobody ends has no entry among those under way
    monkeypatch.setattr(pool.source, "_somebody_commits", lambda: False)
    assert {tp: c.offset for tp, c in pool.source.commits().items()} == {where: 5}
    monkeypatch.undo()
    settings = WorkerSettings(
        group=pool.group, topics=(pool.topic,), bootstrap_servers=pool.bootstrap, output_topic=pool.out
    )
    worker = DataConsumer(settings, "held-back")  # whoever had its lease is fenced
    assert worker.committed([where], 3.0)[where][0] == 5
    worker.close()
    other.abort_transaction(60)
    pool.wait(lambda: {tp: c.offset for tp, c in pool.source.commits().items()} == {where: 5})
    reader.close()


def test_racks_are_those_of_the_brokers_that_lead(kafka: Kafka, pool: Pool) -> None:
    pool.create(pool.topic, partitions=2)
    pool.source.topics = (pool.topic, f"{pool.topic}-never-made")
    pool.wait(lambda: pool.source.racks() == {TopicPartition(pool.topic, p): "rack-1" for p in (0, 1)})


def test_brokers_that_do_not_answer_are_given_up_in_time(kafka: Kafka, pool: Pool) -> None:
    pool.create(pool.topic, partitions=1)
    source = PlannedGroup(pool.bootstrap, pool.group, [pool.topic], patience=timedelta(seconds=1))

    def answers() -> bool:
        try:
            return source.partitions()[pool.topic][1] == 1
        except (BrokersSilent, ck.KafkaException):
            return False

    pool.wait(answers)
    kafka.pause()
    try:
        for ask in (source.partitions, source.members):
            with pytest.raises((BrokersSilent, ck.KafkaException)):
                ask()
        with pytest.raises(FenceFailed, match="not every broker says"):
            source.transactional_ids()
    finally:
        kafka.resume()
    pool.wait(answers)
    source.close()

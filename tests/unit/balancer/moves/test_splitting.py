from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest

from balancer.moves.routed_topic import LONGEST_TRANSACTION_S, LogEnd
from balancer.moves.splitting import REQUESTS_KEPT, SplitLimits, TopicLeader
from balancer.routing.base import Registration, SplitRequest
from balancer.routing.errors import LeaderSuperseded, RoutingError, SplitRefused
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from balancer.routing.table import Phase, decode
from tests.unit.balancer.moves.routed_world import TTL, Entry, Fenced, Group, MemoryWorld, Play, Producer


@pytest.mark.parametrize("groups", [1, 2])
def test_random_schedules_lose_repeat_and_reorder_nothing(groups):
    splits = handled = fences = 0
    for seed in range(25):
        play = Play(seed + 1000 * groups, groups)
        for _ in range(250):
            play.turn()
        play.finish()
        fences += play.world.fences
        for group in play.groups:
            assert group.faults == [], f"seed {seed}"
            assert group.handled == play.truth(), f"seed {seed}"
            handled += group.handled
        table = play.log.read("orders")
        assert table is not None and table.transitions == (), f"seed {seed}: {table.transitions}"
        splits += len(table.kept)  # transitions that went through
    assert splits > 10 and handled > 800 and fences > 5  # the schedules did something


class Desk:
    """One topic with a leader, one producer and one group, and a clock that stands."""

    def __init__(self, groups=("g0",), **limits):
        self.now = 50.0
        self.world, self.log = MemoryWorld(), MemoryTableLog()
        self.store = MemoryRouteStore(clock=lambda: self.now)
        self.limits = SplitLimits(**{"max_partitions": 4, **limits})
        self.groups = groups
        self.leader = self.make_leader()

    def make_leader(self, **more):
        log = MemoryTableLog(self.log)
        return TopicLeader(self.world, log, self.store, self.groups, limits=self.limits, clock=lambda: self.now, **more)

    def ask(self, kind="split", partition=0, lanes=2):
        self.store.request(SplitRequest("r1", "orders", partition, kind, lanes))
        self.leader.step()
        return self.state()

    def state(self):
        return self.store.requests("orders")[0]

    def play(self, producer, group):
        """Let producer, group and leader take a dozen turns, which is enough for a split or a merge."""
        for _ in range(12):
            self.now += 0.05
            producer.hear()
            group.look()
            group.read_all()
            self.leader.step()


def test_k41_the_first_table_places_every_key_by_hash_alone():
    desk = Desk()
    table = desk.leader.step()
    assert table.partitions == 2 and table.moved == {} and table.groups == ("g0",)


def test_a_split_goes_through_and_back():
    desk = Desk()
    desk.leader.step()
    producer = Producer("p", desk.world, desk.store, desk.log)
    group = Group("g0", desk.world, desk.store, desk.log)
    for kind in ("split", "merge"):
        producer.send(b"k1")
        producer.commit()
        desk.ask(kind)
        desk.play(producer, group)
        assert desk.state().state == "done", (kind, desk.state(), desk.leader.table)
    assert desk.leader.table.moved == {} or set(desk.leader.table.moved.values()) <= {0, 1}
    assert group.faults == []


def test_a_live_producer_that_does_not_answer_ends_the_attempt_and_nothing_else():
    desk = Desk()
    desk.leader.step()
    producer = Producer("p", desk.world, desk.store, desk.log)
    producer.send(b"k1")  # a transaction that stays open
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    for _ in range(70):
        desk.now += 0.1
        desk.store.renew(producer.who, TTL, {}, {}, {})
        desk.leader.step()
    assert desk.state().state == "aborted" and "has not answered within 5 s" in desk.state().detail
    assert desk.leader.table.moved == {} and desk.world.fences == 0


def test_a_silent_producer_is_fenced_and_the_split_goes_on():
    desk = Desk()
    desk.leader.step()
    producer = Producer("p", desk.world, desk.store, desk.log)
    producer.send(b"k1")
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    for _ in range(40):
        desk.now += 0.1
        desk.leader.step()
    assert desk.world.fences == 1
    with pytest.raises(Fenced):
        producer.commit()
    assert desk.leader.table.moved


def test_a_registration_that_the_store_lost_is_found_through_the_brokers():
    desk = Desk()
    desk.leader.step()
    Producer("p", desk.world, desk.store, desk.log)
    desk.store.lose()
    desk.leader._published = 0
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    desk.leader.step()
    desk.leader.step()
    assert desk.world.fences == 1


def test_an_emptied_store_gets_its_cache_again():
    desk = Desk()
    table = desk.leader.step()
    desk.store.lose()
    desk.now += 2
    desk.leader.step()
    assert decode(desk.store.table("orders")) == table


def test_another_leader_resumes_where_the_first_one_ended():
    desk = Desk()
    desk.leader.step()
    group = Group("g0", desk.world, desk.store, desk.log)
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    desk.leader.step()
    assert desk.leader.table.transitions[0].phase is Phase.STOPPING
    old, desk.leader = desk.leader, desk.make_leader(holder="second")
    desk.now += 10
    for _ in range(6):
        desk.leader.step()
        group.look()
        group.read_all()
    assert desk.leader.table.transitions == () and desk.leader.table.moved
    old._led_until = desk.now + 100  # it believes that it still leads
    with pytest.raises(LeaderSuperseded):
        old._commit(old.table.__class__("orders", "id-1", 99, "murmur2", 2))


def test_a_hold_ends_even_while_the_store_is_away():
    desk = Desk()
    desk.leader.step()
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    desk.leader.step()
    assert desk.leader.table.held_slots()
    desk.store.away = True
    for _ in range(70):
        desk.now += 0.1
        with contextlib.suppress(RoutingError):
            desk.leader.step()
    assert not desk.leader.table.held_slots() and not desk.log.read("orders").held_slots()


def with_a_lane():
    """Return a desk with one lane, its number, its producer and group, and a key that goes there."""
    desk = Desk(merge_lag=1000)
    desk.leader.step()
    group = Group("g0", desk.world, desk.store, desk.log)
    producer = Producer("p", desk.world, desk.store, desk.log)
    desk.ask()
    for _ in range(10):
        producer.hear()
        group.look()
        group.read_all()
        desk.leader.step()
    assert desk.state().state == "done"
    lane = desk.leader.table.lanes_of(0)[0]
    key = next(k for k in (b"%d" % i for i in range(100)) if desk.leader.table.partition_of_key(k) == lane)
    return desk, lane, producer, group, key


def test_a_merge_whose_group_dies_gives_the_slots_back_after_the_hold_limit():
    desk, lane, producer, _, key = with_a_lane()
    desk.ask("merge")
    producer.send(key)  # begun before STOP, committed after it: the lane's last records, and nobody reads them
    desk.leader.step()
    assert desk.leader.table.held_slots()
    producer.commit()
    for _ in range(40):
        desk.now += 0.1
        producer.hear()
        desk.leader.step()
    assert desk.state().state == "aborted" and "has not drained" in desk.state().detail
    assert desk.leader.table.lanes_of(0) == (lane,)


def test_a_merge_holds_nothing_while_its_lane_lags():
    desk, _, producer, group, key = with_a_lane()
    for _ in range(30):
        producer.send(key)
    producer.commit()
    desk.ask("merge")
    for _ in range(20):
        desk.now += 0.1
        producer.hear()
        desk.leader.step()
        assert not desk.leader.table.held_slots()
    group.read_all()
    desk.leader.step()
    assert desk.leader.table.held_slots()
    desk.play(producer, group)
    assert desk.state().state == "done" and group.faults == []


def test_a_merge_whose_group_is_dead_holds_nothing_and_says_why():
    desk, lane, producer, _, key = with_a_lane()
    producer.send(key)
    producer.commit()
    desk.ask("merge")
    for _ in range(210):
        desk.now += 0.1
        producer.hear()
        desk.leader.step()
        assert not desk.leader.table.held_slots()
    assert desk.state().state == "aborted" and f"partition {lane} was never all but drained" in desk.state().detail


@pytest.mark.parametrize("transactional", [True, False])
def test_what_a_producer_without_transactions_writes_behind_a_switch_is_counted_and_said(transactional):
    desk = Desk()
    desk.leader.step()
    id = "headway.route.plain" if transactional else None
    desk.store.register(Registration("plain", "n", ("orders",), id), timedelta(seconds=600))
    group = Group("g0", desk.world, desk.store, desk.log)
    desk.ask()
    moving = desk.leader.table.transitions[0].slots
    key = next(k for k in (b"%d" % i for i in range(200)) if desk.leader.table.slot_of_key(k) in moving)
    who = Registration("plain", "n", ("orders",), id)
    for _ in range(8):
        group.look()
        desk.store.renew(who, timedelta(seconds=600), {"orders": desk.leader.table.epoch}, {}, {})
        desk.leader.step()
    assert desk.state().state == "done"
    desk.world.logs[0].append(Entry("plain", key, 0))  # it had left the client before the switch
    desk.now += 13
    desk.leader.step()
    assert desk.leader.late == (0 if transactional else 1)
    said = "" if transactional else "1 records landed in orders:0 behind the switch to 2, late"
    assert desk.state().detail == said
    assert any("out of order" in text for text in desk.leader.alarms) is not transactional
    group.read(0, 10)
    assert group.handled == 1  # late, and handled all the same


def test_a_group_that_is_set_back_before_a_split_is_warned():
    desk, lane, producer, group, key = with_a_lane()
    producer.send(key)
    producer.commit()
    group.read(lane, 10)
    desk.ask("merge")
    desk.play(producer, group)
    assert desk.state().state == "done" and desk.leader.table.kept[-1].source == lane
    desk.now += 61
    desk.leader.step()
    assert desk.leader.alarms == []
    desk.world.offsets["g0"][lane] = 0  # the last record lies at 0, its marker at 1
    desk.now += 61
    desk.leader.step()
    assert any(f"group g0 goes on before offset 2 of orders:{lane}" in text for text in desk.leader.alarms)


# -- what is refused, with the reason, and flow goes on by the old table ------------------------------------------
def refused(desk, **ask):
    desk.leader.step()
    before = desk.leader.table
    found = desk.ask(**ask)
    assert found.state == "refused" and desk.leader.table == before
    return found.detail


def test_the_partition_limit_is_kept():
    assert "max_partitions is 4" in refused(Desk(), lanes=5)
    assert "the topic may not grow: set max_partitions" in refused(Desk(max_partitions=None))


def test_e4_the_broker_refuses_partitions():
    desk = Desk()
    desk.world.most = 2
    assert "the broker refuses 3 partitions" in refused(desk)


def test_a_producer_that_is_not_routed():
    desk = Desk()
    desk.world.foreign = ("billing-tx",)
    assert "billing-tx wrote to partition 0 without routing" in refused(desk)


def test_a_producer_with_the_wrong_partitioner():
    desk = Desk()
    desk.leader.step()
    desk.world.wrong = "3 of 200 late records of orders:0 are not where murmur2 puts their keys"
    assert "not splittable: 3 of 200 late records" in refused(desk)


def test_adoption_under_the_wrong_hash():
    desk = Desk()
    desk.world.wrong = "9 of 200 late records of orders:0 are not where murmur2 puts their keys"
    with pytest.raises(SplitRefused, match="set hash = 'crc32'"):
        desk.leader.step()
    assert desk.log.read("orders") is None


def test_a_group_that_is_not_registered():
    desk = Desk()
    desk.world.others = frozenset({"g0", "audit"})
    assert "group audit reads orders and is not registered" in refused(desk)
    desk = Desk(accept_unregistered=True)
    desk.world.others = frozenset({"audit"})
    desk.leader.step()
    assert desk.ask().state == "moving"


def test_a_topic_that_was_created_again_begins_anew():
    desk = Desk()
    desk.leader.step()
    desk.ask()
    desk.world.id = "id-2"
    desk.leader = desk.make_leader()
    desk.now += 10
    table = desk.leader.step()
    assert table.topic_id == "id-2" and table.transitions == () and table.epoch > 1
    assert "created again" in desk.leader.alarms[0]


def started(desk):
    """Take a split of partition 0 up to START, with records below F that nobody has read; return its group."""
    desk.leader.step()
    producer = Producer("p", desk.world, desk.store, desk.log)
    group = Group("g0", desk.world, desk.store, desk.log)
    for i in range(6):
        producer.send(b"k%d" % i)
    producer.commit()
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    for _ in range(3):
        producer.hear()
        desk.leader.step()
    assert desk.leader.table.transitions[0].phase is Phase.STARTED
    return group


def drain(desk, group):
    """Let the group read all it may, and the leader look at the ends anew."""
    for _ in range(4):
        desk.now += 1
        group.look()
        group.read_all()
        desk.leader.step()


def test_data_loss_on_the_source_is_an_alarm_and_no_dead_end():
    desk = Desk()
    group = started(desk)
    desk.world.logs[0] = desk.world.logs[0][:1]  # an unclean election
    drain(desk, group)
    assert desk.leader.table.transitions == ()
    assert any("records are lost" in alarm for alarm in desk.leader.alarms)


def test_retention_that_passes_f_before_a_group_has_drained_is_an_alarm_and_no_dead_end():
    desk = Desk()
    group = started(desk)
    end = len(desk.world.logs[0])
    group.look()
    group.read(0, 1)
    desk.world.starts[0] = 2  # a record is gone that was not read, another is left
    desk.now += 1
    desk.leader.step()
    assert desk.leader.table.transitions and desk.leader.alarms == []
    desk.world.starts[0] = end
    drain(desk, group)  # it finds nothing below F any more, and commits nothing
    assert desk.leader.table.transitions == () and desk.leader.table.moved
    assert desk.leader.alarms == [f"retention has passed {end} on orders:0 before it was drained"]


def test_a_transaction_that_hangs_below_f_is_an_alarm_once_brokers_would_have_ended_it():
    desk = Desk()
    desk.world.logs[0].append(Entry("hanging", b"k0", 0, "open"))  # no routed producer's: nobody fences it
    group = started(desk)
    drain(desk, group)
    desk.now += LONGEST_TRANSACTION_S - 10
    drain(desk, group)
    assert desk.leader.table.transitions and desk.leader.alarms == []  # it may end by itself yet
    desk.now += 10
    drain(desk, group)
    drain(desk, group)
    (said,) = desk.leader.alarms
    assert f"on orders:0 hangs: open for over {LONGEST_TRANSACTION_S:g} s" in said and "find-hanging" in said
    desk.world.settle("hanging", "aborted")  # somebody has followed the advice
    drain(desk, group)
    assert desk.leader.table.transitions == () and group.faults == []


def test_a_plain_producer_that_has_expired_is_forgotten():
    desk = Desk()
    desk.leader.step()
    desk.store.register(Registration("plain", "n", ("orders",)), timedelta(seconds=10))
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    desk.leader.step()
    desk.leader.step()
    assert desk.leader.table.transitions[0].phase is Phase.STOPPING
    desk.now += 11
    desk.leader.step()
    desk.leader.step()
    assert desk.leader.table.moved and desk.store.producers() == ()


def test_what_nobody_registered_is_fenced_before_the_hold_and_not_again_until_it_begins_anew():
    desk = Desk()
    desk.leader.step()
    gone = Producer("gone", desk.world, desk.store, desk.log)
    desk.store.leave(gone.who)  # it has ended in order; the brokers remember its id for days
    for expected, begins_anew in ((1, False), (1, False), (2, True)):
        if begins_anew:
            desk.world.init(gone.id)  # a new life, and the store has lost its registration
        desk.ask()
        assert desk.leader.table.transitions[0].phase is Phase.PREPARED
        desk.leader.step()
        assert desk.world.fences == expected and not desk.leader.table.held_slots()
        desk.now += 21
        desk.leader.step()  # given up: no group closed its gate
        assert desk.leader.table.transitions == ()


def test_ended_requests_are_pruned_and_old_fences_forgotten():
    desk = Desk()
    desk.leader.step()
    for i in range(60):
        desk.store.request(SplitRequest(f"r{i}", "orders", 0, "merge"))
        desk.leader.step()
    assert len(desk.store.requests("orders")) == REQUESTS_KEPT
    producer = Producer("p", desk.world, desk.store, desk.log)
    group = Group("g0", desk.world, desk.store, desk.log)
    for i in range(5):
        producer.send(b"k%d" % i)
    producer.commit()
    desk.ask()
    desk.play(producer, group)
    assert desk.leader.table.kept and desk.leader.table.kept[0].source_end > 0
    desk.world.ends = lambda partitions: {p: LogEnd(99, 0, start=99) for p in partitions}  # retention has passed
    desk.now += 61
    desk.leader.step()
    assert desk.leader.table.kept == ()


def test_a_producer_that_loses_its_registration_before_it_answered_is_fenced():
    desk = Desk()
    desk.leader.step()
    quiet, other = (Producer(n, desk.world, desk.store, desk.log) for n in ("quiet", "other"))
    quiet.send(b"k1")  # a transaction that stays open
    other.send(b"k2")
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    for _ in range(3):
        desk.leader.step()
    assert desk.leader.table.held_slots() and desk.world.fences == 0  # both are waited for
    desk.store.leave(quiet.who)  # a fail-over of the store
    for _ in range(3):
        desk.leader.step()
    assert desk.world.fences == 1 and desk.leader.table.held_slots()
    other.commit()
    for _ in range(3):
        other.hear()
        desk.leader.step()
    assert desk.leader.table.moved and not desk.leader.table.held_slots() and desk.world.fences == 1


def test_a_hold_ends_even_while_a_broker_does_not_answer():
    desk = Desk()
    desk.leader.step()
    desk.ask()
    desk.store.close_gates("orders", "g0", desk.leader.table.epoch)
    desk.leader.step()
    assert desk.leader.table.held_slots()

    def silent(*_):
        raise RoutingError("a broker does not answer")

    desk.world.ends = desk.world.route_ids = silent
    for _ in range(60):
        desk.now += 0.1
        desk.leader.step()
    assert desk.state().state == "aborted" and "a broker does not answer within 5 s" in desk.state().detail
    assert not desk.leader.table.held_slots()

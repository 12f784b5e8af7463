import ctypes
import zlib
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from balancer.routing import protocol
from balancer.routing.hashing import HASHES, murmur2, slot_count
from balancer.routing.native import slot_function
from balancer.routing.table import Fence, Kind, TableRefused, decode, encode, newer

FENCE = Fence(100, 1, 0, 1)


@given(st.binary(max_size=40))
def test_murmur2_equals_an_independent_implementation(key):
    assert murmur2(key) == oracle(key) & 0x7FFFFFFF


@given(key=st.binary(max_size=24), partitions=st.integers(1, 20_000), name=st.sampled_from(sorted(HASHES)))
def test_adoption_moves_no_key_for_any_number_of_partitions(key, partitions, name):
    table = protocol.adopt("orders", "id", partitions, name, [])
    plain = (oracle(key) & 0x7FFFFFFF) if name == "murmur2" else zlib.crc32(key)
    assert table.partition_of_key(key) == plain % partitions
    assert slot_function(name, 4104)(key) == plain % 4104


@pytest.mark.parametrize(("hash_name", "partitioner"), [("murmur2", "murmur2"), ("crc32", "consistent")])
def test_k41_the_start_table_is_the_real_client_s_own_partitioner_for_every_n_up_to_64(hash_name, partitioner):
    """Against the functions of the librdkafka that the client brings, so that no broker need make 2,080 partitions."""
    home = Path(confluent_kafka.__file__).resolve().parent
    (library,) = [*home.parent.glob("confluent_kafka.libs/librdkafka*"), *home.glob(".dylibs/librdkafka*")]
    function = getattr(ctypes.CDLL(str(library)), f"rd_kafka_msg_partitioner_{partitioner}")
    pointer = ctypes.c_void_p
    function.restype = ctypes.c_int32
    function.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, pointer, pointer]
    keys = [b"k%d" % i for i in range(60)] + [b"", b"\x00\xff", "zażółć".encode()]
    for n in range(1, 65):
        table = protocol.adopt("orders", "id", n, hash_name, [])
        assert [table.partition_of_key(k) for k in keys] == [function(None, k, len(k), n, None, None) for k in keys]


@given(st.integers(1, 20_000))
def test_slots_are_a_multiple_and_enough(partitions):
    assert slot_count(partitions) % partitions == 0
    assert 4096 <= slot_count(partitions) < 4096 + partitions


def adopted(groups=("a", "b")):
    return protocol.adopt("orders", "id", 4, "murmur2", groups)


def split_through(table, slots=(0, 4), source=0, target=4):
    table = protocol.prepare(table, Kind.SPLIT, slots, source, target)
    number = table.epoch
    for step in (protocol.stop, lambda t, n: protocol.fence(t, n, FENCE), protocol.start):
        table = step(table, number)
    for group in table.groups:
        table = protocol.open_(protocol.drained(table, number, group), number, group)
    return protocol.done(table, number)


def test_a_split_and_its_merge_come_back_to_the_first_map():
    table = split_through(adopted())
    assert table.lanes_of(0) == (4,)
    assert table.slots_of(4) == (0, 4)
    table = protocol.prepare(table, Kind.MERGE, (0, 4), 4, 0)
    number = table.epoch
    table = protocol.fence(protocol.stop(table, number), number, Fence(50, 1, 160, 1))
    with pytest.raises(TableRefused, match="has not drained"):
        protocol.start(table, number)
    for group in table.groups:
        table = protocol.drained(table, number, group)
    table = protocol.done(protocol.start(table, number), number)
    assert dict(table.moved) == {}
    assert [k.source_end for k in table.kept] == [100, 50]
    assert protocol.forget(table, {0: 100, 4: 49}).kept == table.kept[1:]


def test_every_step_takes_the_next_epoch_and_saying_it_again_changes_nothing():
    table = protocol.prepare(adopted(), Kind.SPLIT, (0,), 0, 4)
    number = table.epoch
    for step in (protocol.stop, lambda t, n: protocol.fence(t, n, FENCE), protocol.start):
        after = step(table, number)
        assert after.epoch == table.epoch + 1
        assert step(after, number) is after
        table = after
    assert protocol.stop(table, number) is table
    assert protocol.fence(table, number, Fence(9, 9, 9, 9)).transitions[0].fence == FENCE  # fixed once


def test_producers_hold_from_stop_to_start_and_groups_wait_until_open():
    table = protocol.prepare(adopted(), Kind.SPLIT, (0, 4), 0, 4)
    number = table.epoch
    assert (table.held_slots(), table.gated("a")) == (frozenset(), {4})
    table = protocol.stop(table, number)
    assert table.held_slots() == {0, 4}
    table = protocol.start(protocol.fence(table, number, FENCE), number)
    assert (table.held_slots(), table.gated("a")) == (frozenset(), {4})
    table = protocol.open_(protocol.drained(table, number, "a"), number, "a")
    assert (table.gated("a"), table.gated("b")) == (frozenset(), {4})


def test_what_must_not_be_said_is_refused():
    table = protocol.prepare(adopted(), Kind.SPLIT, (0,), 0, 4)
    number = table.epoch
    for wrong in (
        lambda: protocol.prepare(table, Kind.SPLIT, (0,), 0, 5),  # I7: one open transition per slot
        lambda: protocol.prepare(table, Kind.SPLIT, (1,), 1, 4),  # I7: per gate partition
        lambda: protocol.prepare(adopted(), Kind.SPLIT, (1,), 0, 4),  # not there
        lambda: protocol.prepare(adopted(), Kind.SPLIT, (0,), 0, 1),  # serves others
        lambda: protocol.start(table, number),  # before the fence
        lambda: protocol.drained(table, number, "a"),  # before START
        lambda: protocol.open_(table, number, "a"),  # before it drained
        lambda: protocol.done(table, number),
        lambda: protocol.register(table, "late"),  # only while nothing is under way
        lambda: protocol.stop(table, number + 7),
    ):
        with pytest.raises(TableRefused):
            wrong()


def test_abort_gives_the_old_map_the_next_epoch_but_not_after_start():
    table = protocol.stop(protocol.prepare(adopted(), Kind.SPLIT, (0,), 0, 4), 2)
    aborted = protocol.abort(table, 2)
    assert (aborted.epoch, aborted.transitions, dict(aborted.moved)) == (table.epoch + 1, (), {})
    assert protocol.abort(aborted, 2) is aborted
    started = protocol.start(protocol.fence(table, 2, FENCE), 2)
    with pytest.raises(TableRefused, match="only go forward"):
        protocol.abort(started, 2)


def test_the_record_survives_and_a_damaged_one_does_not():
    table = split_through(protocol.register(adopted(), "c"))
    table = protocol.stop(protocol.prepare(table, Kind.MERGE, (0, 4), 4, 0), table.epoch + 1)
    assert decode(encode(table)) == table
    for damaged in (encode(table).replace(b'"epoch":', b'"epoch":1'), b"{}", b"not json", encode(table)[:-3]):
        with pytest.raises(TableRefused):
            decode(damaged)
    with pytest.raises(TableRefused, match="upgrade"):
        decode(encode(table).replace(b'"version":1', b'"version":2'))


def test_a_table_for_another_topic_id_or_an_older_epoch_is_refused():
    table = split_through(adopted())
    assert newer(None, table, "id") is table
    with pytest.raises(TableRefused, match="topic id"):
        newer(table, table, "other-id")
    with pytest.raises(TableRefused, match="went back"):
        newer(table, adopted(), "id")

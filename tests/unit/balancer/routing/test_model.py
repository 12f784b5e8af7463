"""Every interleaving of small worlds against the protocol's invariants, and proof that the exploration can fail."""

from dataclasses import replace

import pytest

from balancer.routing import protocol
from balancer.routing.table import Kind, SlotTable
from tests.unit.balancer.routing.model import SLOT, TARGET, Model, explore

CALM = {"joins": 0, "takeovers": 0, "losses": 0, "aborts": 0, "crashes": 0}
WORLDS = {
    "two producers": CALM | {"records": (1, 1), "groups": 1},
    "two groups, a transaction that spans STOP": CALM | {"records": (2,), "groups": 2},
    "a group registers, abort, then retry": CALM | {"records": (1,), "groups": 1, "joins": 1, "aborts": 1},
    "abort, then retry": CALM | {"records": (2,), "groups": 1, "aborts": 1},
    "a producer crashes and comes back": CALM | {"records": (2,), "groups": 1, "crashes": 1},
    "another leader takes over, the store loses registrations": CALM
    | {"records": (1,), "groups": 1, "takeovers": 1, "losses": 1, "aborts": 1},
}
LARGE = {
    "two producers, the store loses registrations": CALM | {"records": (1, 1), "groups": 1, "losses": 1},
    "two producers, two groups": CALM | {"records": (1, 1), "groups": 2},
    "two producers, a group registers": CALM | {"records": (1, 1), "groups": 1, "joins": 1},
    "two producers, abort and retry, crash": CALM | {"records": (1, 1), "groups": 1, "aborts": 1, "crashes": 1},
    "everything but a group that registers": {"records": (2,), "groups": 1, "joins": 0},
    "everything": {"records": (1,), "groups": 1},
}


def holds(kind, sizes):
    explored = explore(Model(kind=kind, **sizes))
    print(f"{kind}: {explored.worlds:,} worlds")
    assert explored.violation is None, "\n".join((explored.violation, *explored.path))
    assert explored.stuck is None, "\n".join(explored.stuck)
    assert explored.finished > 0


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("sizes", WORLDS.values(), ids=WORLDS)
def test_no_interleaving_breaks_an_invariant_or_gets_stuck(kind, sizes):
    holds(kind, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("sizes", LARGE.values(), ids=LARGE)
def test_no_interleaving_of_the_larger_worlds_does_either(kind, sizes):
    holds(kind, sizes)


@pytest.mark.parametrize(
    ("rule", "sizes", "broken"),
    [
        ("wait_for_acks", {"records": (1,), "groups": 1}, "I3"),
        ("hold_while_stopped", {"records": (1,), "groups": 1}, "I3"),
        ("drain_before_open", {"records": (2,), "groups": 1}, "I6"),
        ("ask_the_brokers", {"records": (1,), "groups": 1, "losses": 1}, "I3"),
    ],
)
def test_without_a_rule_a_violation_is_found(rule, sizes, broken):
    explored = explore(Model(**(CALM | sizes | {rule: False})))
    assert explored.violation is not None and explored.violation.startswith(broken)
    assert explored.path


def all_drained(table: SlotTable) -> SlotTable:
    """Return the table as if every group had drained."""
    return replace(table, transitions=tuple(replace(t, drained=table.groups) for t in table.transitions))


def prepare_beside(table, kind, slots, source, target, *, prepare=protocol.prepare):
    """Open a transition whatever else is open."""
    alone = prepare(replace(table, transitions=()), kind, slots, source, target)
    return replace(alone, transitions=(*table.transitions, *alone.transitions))


def stop_and_start(table, number, *, stop=protocol.stop):
    """Send the slots to the lane with STOP, before G is known."""
    return replace(stop(table, number), moved={SLOT: TARGET})


def open_undrained(table, number, group, *, open_=protocol.open_):
    return open_(all_drained(table), number, group)


def start_undrained(table, number, *, start=protocol.start):
    return start(all_drained(table), number)


@pytest.mark.parametrize(
    ("step", "careless", "sizes", "broken"),
    [
        ("prepare", prepare_beside, {}, "I7"),
        ("stop", stop_and_start, {"hold_while_stopped": False}, "I3: record 1 of producer 0 lies below G"),
        ("open_", open_undrained, {"records": (2,)}, "I4"),
        ("start", start_undrained, {"records": (2,), "kind": Kind.MERGE}, "I8"),
    ],
)
def test_with_a_careless_step_of_the_protocol_a_violation_is_found(monkeypatch, step, careless, sizes, broken):
    monkeypatch.setattr(protocol, step, careless)
    explored = explore(Model(**(CALM | {"records": (1,), "groups": 1} | sizes)))
    assert explored.violation is not None and explored.violation.startswith(broken)

"""Every interleaving of small worlds against the protocol's invariants, and proof that the exploration can fail."""

import pytest

from balancer.routing.table import Kind
from tests.unit.balancer.routing.model import Model, explore

CALM = {"takeovers": 0, "losses": 0, "aborts": 0, "crashes": 0}
WORLDS = {
    "two producers": CALM | {"records": (1, 1), "groups": 1},
    "two groups, a transaction that spans STOP": CALM | {"records": (2,), "groups": 2},
    "abort, then retry": CALM | {"records": (2,), "groups": 1, "aborts": 1},
    "a producer crashes and comes back": CALM | {"records": (2,), "groups": 1, "crashes": 1},
    "another leader takes over, the store loses registrations": CALM
    | {"records": (1,), "groups": 1, "takeovers": 1, "losses": 1, "aborts": 1},
}
LARGE = {
    "two producers, the store loses registrations": CALM | {"records": (1, 1), "groups": 1, "losses": 1},
    "two producers, two groups": CALM | {"records": (1, 1), "groups": 2},
    "two producers, abort and retry, crash": CALM | {"records": (1, 1), "groups": 1, "aborts": 1, "crashes": 1},
    "everything on one producer": {"records": (2,), "groups": 1},
}


def holds(kind, sizes):
    explored = explore(Model(kind=kind, **sizes))
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
    ("rule", "sizes"),
    [
        ("wait_for_acks", {"records": (1,), "groups": 1}),
        ("hold_while_stopped", {"records": (1,), "groups": 1}),
        ("drain_before_open", {"records": (2,), "groups": 1}),
        ("ask_the_brokers", {"records": (1,), "groups": 1, "losses": 1}),
    ],
)
def test_without_a_rule_a_violation_is_found(rule, sizes):
    explored = explore(Model(**(CALM | sizes | {rule: False})))
    assert explored.violation is not None
    assert explored.path

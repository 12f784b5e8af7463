"""What a producer's keeper says, and when: the twin in memory, no thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from balancer.routing import protocol
from balancer.routing.keeper import Cluster, RouteKeeper, new_life
from balancer.routing.memory import MemoryRouteStore, MemoryTableLog
from balancer.routing.route import Route
from balancer.routing.table import Kind


@dataclass
class Counting(MemoryRouteStore):
    renewals: int = 0
    acks: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def renew(self, who, ttl, acks, sample, rates):
        self.renewals += 1
        self.acks.append(dict(acks))
        return super().renew(who, ttl, acks, sample, rates)


def test_a_producer_that_is_told_of_stop_answers_with_its_first_renewal() -> None:
    store, log = Counting(), MemoryTableLog()
    log.take("orders")
    table = protocol.adopt("orders", "id", 2, "murmur2", ["g"])
    log.append(table)
    used: dict[str, int] = {}
    in_transaction = False

    def learned(topic: str, route: Route) -> None:
        if not in_transaction:
            used[topic] = route.epoch

    who = new_life("p", ("orders",), "headway.route.p")
    cluster = Cluster(lambda topic: "id", lambda topic: 3)
    keeper = RouteKeeper(who, timedelta(seconds=2), store, log, cluster, learned, lambda: used)
    store.publish(table)
    keeper.start()
    keeper.stop(leave=False)
    prepared = protocol.prepare(table, Kind.SPLIT, (0,), 0, 2)
    stopped = protocol.stop(prepared, prepared.epoch)
    store.publish(stopped)
    before = store.renewals
    keeper.say(told=True)
    assert store.renewals == before + 1 and store.acks[-1] == {"orders": stopped.epoch}
    assert keeper.routes["orders"].places[0] < 0
    # inside a transaction the table is learned at once, and the answer waits for the transaction's end
    in_transaction = True
    store.publish(protocol.abort(stopped, prepared.epoch))
    keeper.say(told=True)
    assert store.acks[-1] == {"orders": stopped.epoch} and keeper.routes["orders"].epoch == stopped.epoch + 1
    store.away = True
    keeper.say(told=True)
    assert keeper.refusals == []

"""A slot table made ready for the hot path: key → slot → partition in a few look-ups."""

from __future__ import annotations

from collections.abc import Callable

from balancer.routing.hashing import cached
from balancer.routing.table import Phase, SlotTable

HELD = -1
"""In place of a partition: the slot is held between STOP and START."""

EPOCH_HEADER = "rt"
"""Header that names the epoch by which a record was routed."""


class Route:
    """One topic's table, compiled. Never changed; a new epoch is a new route.

    Parameters
    ----------
    table
        The table.
    hash_of
        The hash with its memory, taken over from the route before.

    Examples
    --------
    >>> route = Route(SlotTable("orders", "id-1", 1, "crc32", 3))
    >>> route.places[route.slot_of(b"order-17")] == route.table.partition_of_key(b"order-17")
    True
    """

    __slots__ = ("epoch", "hash_of", "headers", "places", "slots", "spread", "table")

    def __init__(self, table: SlotTable, hash_of: Callable[[bytes], int] | None = None) -> None:
        self.table = table
        self.epoch = table.epoch
        self.slots = table.slots
        self.hash_of = hash_of or cached(table.hash)
        self.places = [slot % table.partitions for slot in range(table.slots)]
        for slot, partition in table.moved.items():
            self.places[slot] = partition
        for slot in table.held_slots():
            self.places[slot] = HELD
        self.headers = [(EPOCH_HEADER, str(table.epoch).encode())]
        self.spread = table.hash == "crc32"
        """Whether empty keys are spread, as librdkafka's ``consistent_random`` does."""

    def slot_of(self, key: bytes) -> int:
        """Return a key's slot."""
        return self.hash_of(key) % self.slots

    def targets(self) -> set[int]:
        """Return the partitions that a producer must know before it answers STOP."""
        return {t.target for t in self.table.transitions}

    def stops(self) -> bool:
        """Whether a transition waits for answers at this epoch."""
        return any(t.phase is Phase.STOPPING for t in self.table.transitions)

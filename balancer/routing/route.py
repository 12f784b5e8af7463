"""A slot table made ready for the hot path: key → slot → partition in a few look-ups."""

from __future__ import annotations

from collections.abc import Callable

from balancer.routing.table import Phase, SlotTable

HELD = -1
"""In place of a partition: the slot is held between STOP and START."""

MEMORY = 65_536
"""Most keys remembered."""

EPOCH_HEADER = "rt"
"""Header that names the epoch by which a record was routed."""


class Route:
    """One topic's table, compiled. Never changed; a new epoch is a new route.

    Parameters
    ----------
    table
        The table.
    slot_of
        Key → slot: the table's own by default, in Python; a producer brings a faster one.

    Examples
    --------
    >>> route = Route(SlotTable("orders", "id-1", 1, "crc32", 3))
    >>> route.places[route.slot_of(b"order-17")] == route.table.partition_of_key(b"order-17")
    True
    """

    __slots__ = ("epoch", "headers", "known", "places", "slot_of", "spread", "table")

    def __init__(self, table: SlotTable, slot_of: Callable[[bytes], int] | None = None) -> None:
        self.table = table
        self.epoch = table.epoch
        self.slot_of = slot_of or table.slot_of_key
        self.places = [slot % table.partitions for slot in range(table.slots)]
        for slot, partition in table.moved.items():
            self.places[slot] = partition
        for slot in table.held_slots():
            self.places[slot] = HELD
        self.known: dict[bytes | str, int] = {}
        """Key → place of keys that came lately: one look-up for those that come often."""
        self.headers = [(EPOCH_HEADER, str(table.epoch).encode())]
        self.spread = table.hash == "crc32"
        """Whether empty keys are spread, as librdkafka's ``consistent_random`` does."""

    def place_of(self, key: bytes | str) -> int:
        """Return where a key's records go by this table, or ``HELD``; remembered for the next time."""
        raw = key if isinstance(key, bytes) else key.encode()
        place = self.places[self.slot_of(raw)]
        if len(self.known) >= MEMORY:
            self.known.clear()
        self.known[key] = place
        return place

    def targets(self) -> set[int]:
        """Return the partitions that a producer must know before it answers STOP."""
        return {t.target for t in self.table.transitions}

    def stops(self) -> bool:
        """Whether a transition waits for answers at this epoch."""
        return any(t.phase is Phase.STOPPING for t in self.table.transitions)

"""What each slot, and so each lane, takes of a topic's records, and how slots are laid on new lanes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from balancer.routing.table import SlotTable
from forecaster.forecast import Forecast

TRUSTED = 0.9
"""Most that a sample counts against "all slots alike"."""

ENOUGH = 50.0
"""Sampled records of a partition that count as much as knowing nothing does."""


def place_slots(
    slots: Sequence[int], loads: NDArray[np.float64], room: float
) -> tuple[tuple[tuple[int, ...], ...], int | None]:
    """Return which slots move to which new lane, and a slot that alone is too hot (then nothing moves).

    The heaviest slots move, so that the fewest do; packed first-fit decreasing they say how many lanes it takes, and
    over so many they are spread evenly. Slots that nobody has sampled weigh alike.

    Parameters
    ----------
    slots
        All slots of the partition.
    loads
        Records/s of each.
    room
        Records/s that a lane may take.

    Examples
    --------
    >>> place_slots([0, 2, 4], np.array([50.0, 40.0, 30.0]), 80.0)
    (((0,),), None)
    >>> place_slots([0, 2], np.array([90.0, 1.0]), 80.0)
    ((), 0)
    """
    order = np.argsort(-loads, kind="stable")
    if loads[order[0]] > room:
        return (), int(slots[int(order[0])])
    total = float(loads.sum())
    lanes: list[list[int]] = []
    free: list[float] = []
    # what stays is what is left when the heaviest have gone
    excess = total - room
    moving, gone = [], 0.0
    for i in order.tolist():
        if gone >= excess:
            break
        moving.append(i)
        gone += float(loads[i])
    for i in moving:
        weight = float(loads[i])
        fit = next((k for k, left in enumerate(free) if weight <= left), None)
        if fit is None:
            lanes.append([])
            free.append(room)
            fit = len(lanes) - 1
        lanes[fit].append(i)
        free[fit] -= weight
    lanes = _evened(moving, loads, len(lanes), room) or lanes
    return tuple(tuple(sorted(int(slots[i]) for i in lane)) for lane in lanes), None


def _evened(moving: Sequence[int], loads: NDArray[np.float64], lanes: int, room: float) -> list[list[int]] | None:
    """Spread the same slots over as many lanes, each to the lightest so far; None if one would not fit then."""
    parts: list[list[int]] = [[] for _ in range(lanes)]
    full = [0.0] * lanes
    for i in moving:
        lightest = min(range(lanes), key=lambda k: full[k])
        parts[lightest].append(i)
        full[lightest] += float(loads[i])
    return parts if max(full, default=0.0) <= room else None


def slot_loads(
    table: SlotTable, partition: int, rate: float, shares: NDArray[np.float64], samples: float | None = None
) -> NDArray[np.float64]:
    """Return records/s of each slot of a partition: by the sample as far as it can be trusted, the rest spread evenly.

    Parameters
    ----------
    table, partition, rate
        Whose slots, and records/s of all of them.
    shares
        Shape (slots,): each slot's share of the topic's records, as sampled.
    samples
        How many records were sampled of the topic; None: many. A handful that was drawn says nearly nothing.

    Examples
    --------
    >>> table = SlotTable("orders", "id-1", 1, "murmur2", 2)
    >>> loads = slot_loads(table, 0, 2048.0, np.zeros(4096))
    >>> loads.size, float(loads[0])
    (2048, 1.0)
    >>> one = np.zeros(4096)
    >>> one[0] = 1.0
    >>> [round(float(slot_loads(table, 0, 100.0, one, samples=n)[0])) for n in (1, 50, 5000)]
    [2, 50, 90]
    """
    return np.asarray(rate * _weights(table.slots_of(partition), shares, samples))


def by_slots(
    forecast: Forecast, table: SlotTable, shares: NDArray[np.float64] | None = None, samples: float | None = None
) -> Forecast:
    """Return a topic's forecast as its slots lie now: what a lane will take is not what its partition's past says.

    A lane that has just been made has no past, its parent's is that of more slots, and a lane that was merged has a
    past but no slots. Parent and lanes together have one that means something: their sum stands, step by step and
    level by level, and is laid out by the slots that each of them serves now.

    Parameters
    ----------
    forecast
        Of the topic, one row a partition.
    table
        The slot table in use.
    shares
        Shape (slots,): each slot's share of the topic's records, as sampled; None counts slots alike.
    samples
        As for :func:`slot_loads`.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from forecaster.forecast import Rung
    >>> table = SlotTable("orders", "id-1", 5, "murmur2", 2, moved={s: 2 for s in range(0, 2048, 2)})
    >>> told = Forecast("orders", datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=15), (0, 1), (0.9,),
    ...                 np.array([[[90.0]], [[20.0]]]), np.array([[110.0]]), "seasonal", Rung.OWN_MODEL)
    >>> laid = by_slots(told, table)
    >>> laid.partitions, laid.rates[:, 0, 0].tolist()
    ((0, 1, 2), [45.0, 20.0, 45.0])
    """
    rows = {p: forecast.rates[i] for i, p in enumerate(forecast.partitions)}
    lanes = set(table.moved.values()) | {p for p in rows if p >= table.partitions}
    if forecast.topic != table.topic or not lanes - set(range(table.partitions)):
        return forecast
    shares = np.zeros(table.slots) if shares is None else shares
    parents = _parents(table)
    sums = {p: row for p, row in rows.items() if p < table.partitions}
    strays = []
    found = {p: np.zeros_like(rows[p]) for p in rows if p >= table.partitions}
    for lane in sorted(lanes & set(rows)):
        parent = parents.get(lane)
        if parent in sums:
            sums[parent] = sums[parent] + rows[lane]
        elif parent is not None:
            found[lane] = rows[lane]  # nothing is said of its parent: nothing to lay out
        else:
            strays.append(rows[lane])
    if strays and sums:  # nobody remembers whose lane it was: all take a part, as they are busy
        whole = np.sum(list(sums.values()), axis=0)
        more = np.sum(strays, axis=0) / np.where(whole > 0, whole, 1.0)
        sums = {p: row * (1.0 + more) for p, row in sums.items()}
    for parent, row in sums.items():
        members = [parent, *table.lanes_of(parent)]
        served = [table.slots_of(p) for p in members]
        weights = _weights([s for slots in served for s in slots], shares, samples)
        ends = np.cumsum([len(slots) for slots in served])
        for p, part in zip(members, np.split(weights, ends[:-1]), strict=True):
            found[p] = row * float(part.sum())
    partitions = tuple(sorted(found))
    rates = np.maximum.accumulate(np.stack([found[p] for p in partitions]), axis=-1)
    return replace(forecast, partitions=partitions, rates=rates)


def _parents(table: SlotTable) -> dict[int, int]:
    """Return lane → the partition whose slots it serves, or served last as far as the table remembers."""
    found: dict[int, int] = {}
    for kept in table.kept:
        home = kept.slots[0] % table.partitions
        found |= {p: home for p in (kept.source, kept.target) if p >= table.partitions}
    return found | {p: s % table.partitions for s, p in table.moved.items() if p >= table.partitions}


def _weights(slots: Sequence[int], shares: NDArray[np.float64], samples: float | None) -> NDArray[np.float64]:
    """Return what slots of one origin weigh against each other, one in all: by the sample, and the rest alike."""
    even = np.full(len(slots), 1.0 / max(len(slots), 1))
    seen = shares[np.array(slots, dtype=int)]
    total = float(seen.sum())
    if total <= 0:
        return even
    # a sample says little of light slots: a tenth is spread evenly; and a small one says little of any
    trust = TRUSTED if samples is None else min(TRUSTED, samples * total / (samples * total + ENOUGH))
    return np.asarray(trust * seen / total + (1 - trust) * even)

"""Hot partitions and keys: what no number of members can serve, from when on, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from balancer.plan import Bound, BoundKind, Proposal
from forecaster.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class HotPartition:
    """A partition that takes a large share of one member, or more than all of it.

    Parameters
    ----------
    partition
        Which one.
    peak
        Records/s at its highest step.
    share
        Peak over the capacity of the fastest member; above 1 nobody can serve it.
    saturates_at
        First step whose rate is above that capacity; None if none is.
    """

    partition: TopicPartition
    peak: float
    share: float
    saturates_at: datetime | None


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that alone takes a large share of one member: splitting its partition does not divide it."""

    partition: TopicPartition
    key: str
    rate: float
    share: float


def hot_partitions(
    partitions: Sequence[TopicPartition],
    rates: NDArray[np.float64],
    origin: datetime,
    step: timedelta,
    capacity: float,
    hot_share: float = 0.8,
) -> tuple[HotPartition, ...]:
    """Find the partitions above a share of one member's capacity, hottest first.

    Parameters
    ----------
    partitions
        One a row.
    rates
        Shape (partitions, steps), records/s at the quantile that the plan uses.
    origin, step
        Begin of the first step, aware; length of a step.
    capacity
        Records/s of the fastest member.
    hot_share
        Share of the capacity from which on a partition is reported.

    Examples
    --------
    >>> from datetime import UTC
    >>> rates = np.array([[10.0, 20.0, 20.0], [70.0, 90.0, 130.0]])
    >>> names = [TopicPartition("orders", 6), TopicPartition("orders", 7)]
    >>> hot = hot_partitions(names, rates, datetime(2026, 1, 5, 8, 40, tzinfo=UTC), timedelta(minutes=20), 100.0)
    >>> [(str(h.partition), h.share, f"{h.saturates_at:%H:%M}") for h in hot]
    [('orders:7', 1.3, '09:20')]
    """
    if not 0 < capacity < np.inf:
        raise ValueError(f"capacity={capacity} must be a positive number of records/s")
    if not rates.size:
        return ()
    peaks = rates.max(axis=1)
    over = rates > capacity
    found = []
    for row in np.flatnonzero(peaks > hot_share * capacity).tolist():
        first = origin + step * int(over[row].argmax()) if over[row].any() else None
        found.append(HotPartition(partitions[row], float(peaks[row]), float(peaks[row] / capacity), first))
    return tuple(sorted(found, key=lambda h: (-h.share, h.partition)))


def hot_keys(
    counts: Mapping[tuple[TopicPartition, str], float],
    partition_rates: Mapping[TopicPartition, float],
    capacity: float,
    hot_share: float = 0.8,
) -> tuple[HotKey, ...]:
    """Find the keys that alone are hot, from each key's share of its partition's sampled records.

    Parameters
    ----------
    counts
        (partition, key) → share of the partition's records, within [0, 1].
    partition_rates
        Records/s of the partitions; keys of unknown ones are left out.
    capacity
        Records/s of the fastest member.
    hot_share
        Share of the capacity above which a key is hot.

    Examples
    --------
    >>> p = TopicPartition("orders", 7)
    >>> [h.key for h in hot_keys({(p, "eve"): 0.9, (p, "bob"): 0.1}, {p: 150.0}, 100.0)]
    ['eve']
    """
    found = []
    for (partition, key), share in counts.items():
        rate = share * partition_rates.get(partition, 0.0)
        if rate > hot_share * capacity:
            found.append(HotKey(partition, key, rate, rate / capacity))
    return tuple(sorted(found, key=lambda h: (-h.share, h.partition, h.key)))


def bound_of(hot: Sequence[HotPartition], keys: Sequence[HotKey] = ()) -> Bound | None:
    """What bounds the plan, if a partition saturates: the key that alone does it, else the first partition to do so.

    Examples
    --------
    >>> bound_of([HotPartition(TopicPartition("orders", 7), 90.0, 0.9, None)]) is None
    True
    """
    saturating = [(h.saturates_at, h) for h in hot if h.saturates_at is not None]
    if not saturating:
        return None
    at, first = min(saturating, key=lambda pair: (pair[0], pair[1].partition))
    for key in keys:
        if key.partition == first.partition and key.share > 1:
            return Bound(BoundKind.KEY, f"{key.partition}/{key.key}", at)
    return Bound(BoundKind.PARTITION, str(first.partition), at)


def proposals(
    hot: Sequence[HotPartition],
    now: datetime,
    timezone: str,
    *,
    keys: Sequence[HotKey] = (),
    may_split: bool = False,
    alone: frozenset[TopicPartition] = frozenset(),
    faster_capacity: float | None = None,
) -> tuple[Proposal, ...]:
    """Say what would help: isolate what is hot, split what saturates, or make one member faster.

    Nothing here is ever done by itself, and a topic's partition count is never changed: adding partitions sends the
    keys elsewhere and breaks their order.

    Parameters
    ----------
    hot
        As :func:`hot_partitions` gives them.
    now, timezone
        For the text: the group's zone.
    keys
        As :func:`hot_keys` gives them.
    may_split
        Whether the topic's producers are routed, so that a split keeps the order of each key.
    alone
        Partitions that own a member already.
    faster_capacity
        Records/s of a faster kind of member, if there is one.

    Examples
    --------
    >>> from datetime import UTC
    >>> monday = datetime(2026, 1, 5, 8, 40, tzinfo=UTC)
    >>> hot = [HotPartition(TopicPartition("orders", 7), 130.0, 1.3, monday)]
    >>> for p in proposals(hot, monday - timedelta(days=2), "Europe/Berlin", may_split=True):
    ...     print(p.kind, "|", p.text)
    split | partition 7 passes one member's capacity on Monday 09:40 (peak 130 %): split it into 2 lanes
    faster_member | partition 7 passes one member's capacity on Monday 09:40 (peak 130 %): a member 1.7 times as fast...
    batching | partition 7 passes one member's capacity on Monday 09:40 (peak 130 %): larger batches or a cheaper ...
    """
    found: list[Proposal] = []
    by_partition = {k.partition: k for k in keys if k.share > 1}
    for h in hot:
        name, at = str(h.partition), h.saturates_at
        if at is None:
            if h.partition not in alone:
                text = (
                    f"partition {h.partition.partition} takes {_percent(h.share)} of one member: give it a member alone"
                )
                found.append(Proposal("isolate", name, text))
            continue
        what = (
            f"partition {h.partition.partition} passes one member's capacity {when(at, now, timezone)} "
            f"(peak {_percent(h.share)})"
        )
        key = by_partition.get(h.partition)
        lanes = int(np.ceil(h.share / 0.8))
        if key is not None:
            text = f"{what}: key {key.key} alone takes {_percent(key.share)}; a split cannot divide a key"
            found.append(Proposal("key", f"{name}/{key.key}", text, at))
        elif may_split:
            found.append(Proposal("split", name, f"{what}: split it into {lanes} lanes", at))
        else:
            text = f"{what}: it can be split into {lanes} lanes once its producers are routed (headway route)"
            found.append(Proposal("split", name, text, at))
        need = h.share / 0.8
        fast = (
            f"; one with {faster_capacity:g} records/s would do"
            if faster_capacity and faster_capacity >= h.peak
            else ""
        )
        found.append(Proposal("faster_member", name, f"{what}: a member {_up(need)} times as fast serves it{fast}", at))
        text = f"{what}: larger batches or a cheaper handler raise the capacity of every member"
        found.append(Proposal("batching", name, text, at))
    return tuple(found)


def in_lines(proposals: Sequence[Proposal]) -> tuple[str, ...]:
    """Say proposals as people read them: one line for each partition or key, with all that would help it.

    Examples
    --------
    >>> monday = datetime(2026, 1, 5, 8, 40)
    >>> what = "partition 7 passes one member's capacity now (peak 130 %)"
    >>> in_lines([Proposal("split", "orders:7", f"{what}: split it into 2 lanes", monday),
    ...           Proposal("batching", "orders:7", f"{what}: larger batches", monday)])
    ("partition 7 passes one member's capacity now (peak 130 %): split it into 2 lanes; or larger batches",)
    """
    cures: dict[str, list[str]] = {}
    for one in proposals:
        what, _, cure = one.text.partition(": ")
        cures.setdefault(what, []).append(cure)
    return tuple(": ".join(filter(None, (what, "; or ".join(filter(None, found))))) for what, found in cures.items())


def when(at: datetime, now: datetime, timezone: str) -> str:
    """Say an instant as people do: now, today's hour, a weekday within the week, else the date; in the group's zone.

    Examples
    --------
    >>> from datetime import UTC
    >>> monday = datetime(2026, 1, 5, 8, 40, tzinfo=UTC)
    >>> when(monday, monday - timedelta(days=3), "Europe/Berlin"), when(monday, monday, "Europe/Berlin")
    ('on Monday 09:40', 'now')
    >>> when(monday, monday - timedelta(days=7), "UTC")
    'on 2026-01-05 08:40'
    """
    if at <= now:
        return "now"
    local, today = at.astimezone(ZoneInfo(timezone)), now.astimezone(ZoneInfo(timezone)).date()
    if (local.date() - today).days < 7:
        return f"on {_WEEKDAYS[local.weekday()]} {local:%H:%M}"
    return f"on {local:%Y-%m-%d %H:%M}"


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _up(value: float) -> str:
    return f"{np.ceil(value * 10) / 10:.1f}"

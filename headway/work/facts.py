"""What the records say of a group's partitions now: lag and rates as a planner's snapshot wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from balancer.group import PartitionState
from forecaster.conditions import Condition, Ints, Mask, conditions
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.topics import GroupId, TopicPartition


def recorded_states(
    store: SeriesStore,
    group: GroupId,
    topics: Sequence[str],
    now: datetime,
    *,
    rate_steps: int = 1,
    max_age: timedelta = timedelta(minutes=5),
) -> Mapping[TopicPartition, PartitionState]:
    """Return the state of every recorded partition of a group's topics.

    Parameters
    ----------
    store
        Where the records are.
    group, topics
        What is asked for; a topic of which nothing is recorded is left out.
    now
        Aware UTC; steps that are not complete by then are left out.
    rate_steps
        Rates are means over the latest so many known steps; a planner that averages itself wants one.
    max_age
        A last good value older than this is no longer a value.

    Notes
    -----
    What is not known now is the last good value while it is young enough, then None with the reason: an outage of the
    source is neither zero lag nor zero traffic. A partition that is stuck on one record says so, and why.
    """
    found: dict[TopicPartition, PartitionState] = {}
    for topic in topics:
        meta = store.meta(topic)
        if meta is None:
            continue
        step_s = meta.step_s
        end = int(now.timestamp()) // step_s
        window = max(int(max_age.total_seconds()) // step_s, rate_steps, 1)
        read = {
            name: store.read(SeriesKey(topic, name, None if name in _TOPICS else group, step_s), end - window, end)
            for name in ("arrivals", "consumed", "lag", "committed", "end_offset")
        }
        count = max(meta.partitions, *(cells.partitions for cells in read.values()))
        values = {name: _padded(cells, count, window) for name, cells in read.items()}
        (arrivals, a), (consumed, c), (lag, k) = (values[n] for n in ("arrivals", "consumed", "lag"))
        (committed, m), (ends, e) = values["committed"], values["end_offset"]
        ahead = m[:, -1] & e[:, -1] & (committed[:, -1] > ends[:, -1])
        judged = conditions(arrivals, a, consumed, c, lag, k, ahead)
        for p in range(count):
            lag_now, rate, why = _last(lag[p], k[p]), _rate(arrivals[p], a[p], rate_steps, step_s), None
            if rate is None:
                why = f"no arrivals are recorded of the last {window * step_s} s; they begin two steps after the start"
            elif lag_now is None:
                why = f"no lag of {group} is recorded of the last {window * step_s} s"
            elif judged[p] in (Condition.STUCK, Condition.STALLED, Condition.OFFSET_AHEAD):
                why = f"{judged[p]}: {_REMARKS[judged[p]]}"
            found[TopicPartition(topic, p)] = PartitionState(
                lag=lag_now,
                arrival_rate=rate,
                consumption_rate=_rate(consumed[p], c[p], rate_steps, step_s),
                why=why,
                is_stuck=judged[p] is Condition.STUCK,
            )
    return found


_TOPICS = ("arrivals", "end_offset")
_REMARKS = {
    Condition.STUCK: "its commit stands still while the group works elsewhere; look at the record behind it",
    Condition.STALLED: "records wait and nobody commits; look at the group's consumers",
    Condition.OFFSET_AHEAD: "the commit lies beyond the log's end; reset the group's offset",
}


def _padded(cells: Cells, count: int, steps: int) -> tuple[Ints, Mask]:
    values, known = np.zeros((count, steps), dtype=np.int64), np.zeros((count, steps), dtype=np.bool_)
    values[: cells.partitions], known[: cells.partitions] = cells.values, cells.known
    return values, known


def _last(values: Ints, known: Mask) -> int | None:
    at = np.flatnonzero(known)
    return int(values[at[-1]]) if at.size else None


def _rate(values: Ints, known: Mask, steps: int, step_s: int) -> float | None:
    at = np.flatnonzero(known)[-steps:]
    return float(values[at].mean()) / step_s if at.size else None

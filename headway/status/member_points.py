"""Members of a group over time, as a chart wants them: few points, and every change among them."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter

import numpy as np

from forecaster.errors import StoreError
from headway.application import Application
from headway.status.board import GroupView, ReplicaPoint
from headway.status.shadow import reactive_members
from headway.status.totals import DAY, joined
from headway.status.wire import Document, instant

MAX_POINTS = 3000


def member_points(app: Application, view: GroupView, start: datetime, end: datetime) -> list[Document]:
    """Return members requested and working at each change, and what the reactive rule would have asked for beside us.

    Where nobody ran the rule (a replay does), it is computed from the recorded arrivals. Every row says all three as
    they stand then; None is "not known then".
    """
    points = _changes([p for p in list(view.replicas) if start <= p.at < end])
    rows: list[Document] = [
        {"at": instant(p.at), "requested": p.requested, "working": p.working, "reactive": p.reactive} for p in points
    ]
    if rows and all(row["reactive"] is None for row in rows):
        rows = _with_shadow(app, view, points, rows)
    return rows


def _changes(points: list[ReplicaPoint]) -> list[ReplicaPoint]:
    kept = []
    for k, point in enumerate(points):
        before = points[k - 1] if k else None
        if before is None or point.numbers != before.numbers or k == len(points) - 1:
            kept.append(point)
    return kept[-MAX_POINTS:]


def _with_shadow(app: Application, view: GroupView, points: list[ReplicaPoint], rows: list[Document]) -> list[Document]:
    capacity = view.capacity_per_member
    try:
        now = app.clock()
        cache = app.totals if points[0].at >= now - DAY else app.long_totals
        totals = joined([cache.of(topic, now) for topic in view.topics]) if capacity else None
    except StoreError:  # what is in memory is answered without the store
        totals = None
    if totals is None or not capacity:
        return rows
    policy = app.settings.policy(view.name)
    members = reactive_members(totals.rates, totals.step_s, capacity, policy.min_replicas, policy.max_replicas)
    at = (totals.first_index + 1 + np.arange(members.size)) * totals.step_s
    inside = (at >= points[0].at.timestamp()) & (at <= points[-1].at.timestamp())
    at, members = at[inside], members[inside]
    unknown = np.isnan(members)
    same = (members[1:] == members[:-1]) | (unknown[1:] & unknown[:-1])
    changed = np.concatenate([[True], ~same]) if members.size else np.zeros(0, dtype=np.bool_)
    more: list[Document] = [
        {"at": instant(datetime.fromtimestamp(int(when), UTC)), "reactive": None if np.isnan(count) else int(count)}
        for when, count in zip(at[changed], members[changed], strict=True)
    ]
    standing: Document = {"requested": None, "working": None, "reactive": None}
    merged = []
    for row in sorted([*({k: v for k, v in r.items() if k != "reactive"} for r in rows), *more], key=itemgetter("at")):
        standing = standing | row
        merged.append(standing)
    return merged

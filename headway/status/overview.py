"""The overview beyond each state: a day of arrivals with the hours ahead, and four headline figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import StoreError
from forecaster.forecast import Forecast, NoForecast
from forecaster.joining import joined_forecast
from forecaster.stores.base import SeriesKey
from headway.api.series import latency
from headway.application import Application
from headway.status.board import GroupView, group_document
from headway.status.shadow import reactive_members
from headway.status.totals import Totals, joined
from headway.status.wire import Document, instant, parse_instant

BIN_S = 900
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
AHEAD = timedelta(hours=6)
PEAK_WEEKS = 4
HOUR_S = 3600
_ORDER = {"attention": 0, "acting": 1, "fine": 2}


def described(app: Application, view: GroupView, now: datetime) -> Document:
    """Return a group's document with what the settings say of it: zone, step, SLO, price, limits."""
    policy, grid = app.settings.policy(view.name), app.settings.grid(view.name)
    own = app.settings.group(view.name)
    return group_document(view, now) | {
        "timezone": grid.timezone,
        "step_s": grid.step_s,
        "slo_s": policy.slo.total_seconds(),
        "min_replicas": policy.min_replicas,
        "max_replicas": policy.max_replicas,
        "cap_at_partitions": policy.cap_at_partitions,
        "price_per_member_hour": policy.price_per_member_hour,
        "rescales_per_day": policy.rescales_per_day,
        "target_utilization": policy.target_utilization,
        "needs_approval": bool(own is not None and own.approval),
        "not_yet": _not_yet(view),
    }


def _not_yet(view: GroupView) -> Document | None:
    """Return why there is no forecast, and from when on there can be one; None where there is."""
    if not view.topics:
        return {"reason": "the group reads no topic yet", "possible_from": None}
    for topic in view.topics:
        found = view.forecasts.totals(topic)
        if found is None:
            return {"reason": "the first forecast comes with the next step", "possible_from": None}
        if isinstance(found, NoForecast):
            at = found.possible_from
            return {"reason": found.reason, "possible_from": None if at is None else instant(at)}
    return None


def overview(app: Application, now: datetime) -> Document:
    """Return all groups, those that need a person first, with sparklines and the headline figures of the last day."""
    found = []
    for name in app.board.names:
        view = app.board.get(name)
        if view is None:
            continue
        document = described(app, view, now)
        each: dict[str, Totals | None] = dict.fromkeys(view.topics)
        try:
            each = {topic: app.totals.of(topic, now) for topic in view.topics}
        except StoreError as error:
            document["problems"] = {**document["problems"], "store": str(error)}
            document["state"] = "attention"
        totals = joined(list(each.values()))
        document["spark"] = _spark(totals, _ahead(view), now) | {
            "topics": list(view.topics),
            "why": None if totals is not None else _why_no_sum(each),
        }
        document["day"] = day_figures(app, view, totals, now)
        found.append(document)
    found.sort(key=urgency)
    inputs = ("arrivals", "snapshot")
    ages = [(age, d["group"], kind) for d in found for kind, age in d["ages"].items() if kind in inputs]
    oldest = max(ages, default=None)
    return {
        "now": instant(now),
        "groups": found,
        "figures": {
            "late_records": _sum(d["day"]["late_records"] for d in found),
            "records": _sum(d["day"]["records"] for d in found),
            "member_hours": _sum(d["day"]["member_hours"] for d in found),
            "reactive_member_hours": _sum(d["day"]["reactive_member_hours"] for d in found),
            "rescales": _sum(d["day"]["rescales"] for d in found),
            "rescale_budget": _sum(d["rescales_per_day"] for d in found),
            "oldest_input": None
            if oldest is None
            else {"age_s": round(oldest[0], 3), "group": oldest[1], "input": oldest[2]},
        },
    }


def urgency(document: Document) -> tuple[int, bool, float, str]:
    """Return what the overview is sorted by: state, groups that are acted on, the share of late records, name.

    Examples
    --------
    >>> day = {"records": 1000, "late_records": 10}
    >>> urgency({"state": "attention", "mode": "act", "day": day, "group": "orders"})
    (0, False, -0.01, 'orders')
    """
    day = document["day"]
    late = (day["late_records"] or 0) / day["records"] if day["records"] else 0.0
    return _ORDER[document["state"]], document["mode"] != "act", -late, document["group"]


def _why_no_sum(each: Mapping[str, Totals | None]) -> str:
    missing = [topic for topic, totals in each.items() if totals is None]
    if not missing:
        return "its topics are recorded in different steps" if each else "the group reads no topic yet"
    return (
        "nothing is recorded yet" if len(missing) == len(each) else f"nothing of {', '.join(missing)} is recorded yet"
    )


def _ahead(view: GroupView) -> Forecast | None:
    """Return the forecast of a group's topics together; None where one of them has none."""
    found = [told for topic in view.topics if (told := view.forecasts.totals(topic)) is not None]
    if not found or len(found) < len(view.topics):
        return None
    both = joined_forecast(found)
    return both if isinstance(both, Forecast) else None


def _sum(values: object) -> float | None:
    known = [v for v in values if v is not None]  # type: ignore[attr-defined]
    return sum(known) if known else None


def nullable(values: NDArray[np.float64], digits: int = 4) -> list[float | None]:
    """Return numbers of so many significant digits; what is not known is None.

    Examples
    --------
    >>> nullable(np.array([1234.56, np.nan, 0.0]))
    [1235.0, None, 0.0]
    """
    known = np.isfinite(values)
    safe = np.where(known & (values != 0), values, 1.0)
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(safe))))
    rounded = np.where(values == 0, 0.0, np.round(safe * scale) / scale)
    return [v if k else None for v, k in zip(rounded.tolist(), known.tolist(), strict=True)]


def _spark(totals: Totals | None, forecast: Forecast | None, now: datetime) -> Document:
    document: Document = {"step_s": BIN_S, "from": None, "arrivals": [], "ahead": None}
    if totals is not None:
        start_s, means = totals.means(max(BIN_S, totals.step_s), int(DAY.total_seconds() // max(BIN_S, totals.step_s)))
        document |= {
            "step_s": max(BIN_S, totals.step_s),
            "from": instant(datetime.fromtimestamp(start_s, now.tzinfo)),
            "arrivals": nullable(means, 3),
        }
    if forecast is not None and 0.5 in forecast.levels:
        per = max(int(BIN_S // forecast.step.total_seconds()), 1)
        count = min(int(AHEAD / forecast.step), forecast.steps) // per
        high = max(level for level in forecast.levels if level <= 0.95)

        def binned(level: float) -> list[float | None]:
            column = forecast.total[: count * per, forecast.level_index(level)]
            return nullable(column.reshape(count, per).mean(axis=1), 3)

        document["ahead"] = {
            "from": instant(forecast.origin),
            "step_s": forecast.step.total_seconds() * per,
            "median": binned(0.5),
            "high": binned(high),
            "level": high,
        }
    return document


def day_figures(app: Application, view: GroupView, totals: Totals | None, now: datetime) -> Document:
    """Return the last 24 hours of a group: records, late ones, member-hours beside two rules, changes.

    What is saved against the static peak is of the last week, as far as its members were seen: ``saved_over_h`` hours.
    """
    since = now - DAY
    points = [p for p in list(view.replicas) if p.at >= since]
    hours, rescales, covered_h = _hours([(p.at, p.requested) for p in points])
    reactive, _, _ = _hours([(p.at, p.reactive) for p in points])
    policy, capacity = app.settings.policy(view.name), view.capacity_per_member
    if reactive is None and covered_h and totals is not None and capacity:
        members = reactive_members(totals.rates, totals.step_s, capacity, policy.min_replicas, policy.max_replicas)
        extent = int((points[-1].at - points[0].at).total_seconds() // totals.step_s) if points else 0
        known = members[-extent:] if extent else members[:0]
        reactive = float(np.nanmean(known)) * covered_h if known.size and not np.isnan(known).all() else None
    records = late = None
    if totals is not None:
        known_rates = np.where(np.isnan(totals.rates), 0.0, totals.rates)
        records = float(known_rates.sum() * totals.step_s)
        late = _late(_delays(app, view, since, now), totals, known_rates, policy.slo.total_seconds())
    peak = static_peak(app, view, now)
    week, _, week_h = _hours([(p.at, p.requested) for p in list(view.replicas) if p.at >= now - WEEK])
    static = None if peak is None or not week_h else peak * week_h
    return {
        "records": None if records is None else round(records),
        "late_records": None if late is None else round(late),
        "member_hours": None if hours is None else round(hours, 3),
        "reactive_member_hours": None if reactive is None else round(reactive, 3),
        "static_peak_members": peak,
        "saved_vs_static": None if static is None or week is None else round(1 - week / static, 4),
        "saved_over_h": None if static is None or week is None else round(week_h, 3),
        "rescales": rescales,
        "known_h": round(covered_h, 3),
    }


def _hours(points: list[tuple[datetime, int | None]]) -> tuple[float | None, int | None, float]:
    """Return member-hours, changes, and the hours that both are of: while nobody looked, no members are made up."""
    spans = [(n, (b - at).total_seconds()) for (at, n), (b, _) in pairwise(points) if n is not None]
    if not spans:
        return None, None, 0.0
    known = [n for _, n in points if n is not None]
    total, covered = sum(n * s for n, s in spans), sum(s for _, s in spans)
    return total / HOUR_S, sum(a != b for a, b in pairwise(known)), covered / HOUR_S


def _delays(app: Application, view: GroupView, since: datetime, now: datetime) -> list[tuple[datetime, float]]:
    """Return when the delay was how many seconds: as measured in a replay, else as recorded."""
    if view.latencies:
        return [(at, v) for at, v in list(view.latencies) if at >= since]
    minute = int(now.timestamp()) // 60
    kept = app.delays.get(view.name)
    if kept is None or kept[0] != minute:
        try:
            points = latency(app, view, since, now)["points"]
        except StoreError:
            return []
        # a recorded point stands at its step's end, and is of the records before it
        found = [
            (parse_instant(p["at"]) - timedelta(seconds=1), float(p["p99_s"])) for p in points if p["p99_s"] is not None
        ]
        kept = app.delays[view.name] = (minute, found)
    return kept[1]


def _late(seen: list[tuple[datetime, float]], totals: Totals, rates: NDArray[np.float64], slo_s: float) -> float | None:
    """Return records that arrived while the delay was beyond the SLO; None where no delay is known."""
    if not seen:
        return None
    index = np.array([int(at.timestamp()) // totals.step_s for at, _ in seen]) - totals.first_index
    beyond = np.array([v > slo_s for _, v in seen]) & (index >= 0) & (index < rates.size)
    return float(rates[np.unique(index[beyond])].sum() * totals.step_s)


def static_peak(app: Application, view: GroupView, now: datetime) -> int | None:
    """Return the members that would carry the busiest hour of the last four weeks at all times; None without history.

    The mean of the busiest hour understates the peak, so what is said to be saved is saved at least. Read once an hour.
    """
    capacity = view.capacity_per_member
    if not capacity or not view.topics:
        return None
    hour = int(now.timestamp()) // HOUR_S
    kept = app.peaks.get(view.name)
    if kept is None or kept[0] != hour:
        sums: NDArray[np.float64] | None = None
        for topic in view.topics:
            try:
                meta = app.store.meta(topic)
                if meta is None:
                    return None
                key = SeriesKey(topic, "arrivals", step_s=meta.step_s)
                cells, _ = app.store.read_hourly(key, hour - PEAK_WEEKS * 7 * 24, hour)
            except StoreError:
                return None
            if not cells.partitions:
                return None
            whole = np.where(cells.known.all(axis=0), cells.values.sum(axis=0), np.nan)
            sums = whole if sums is None else sums + whole
        rate = None if sums is None or np.isnan(sums).all() else float(np.nanmax(sums)) / HOUR_S
        kept = app.peaks[view.name] = (hour, rate)
    return None if kept[1] is None else max(1, math.ceil(kept[1] / capacity - 1e-9))

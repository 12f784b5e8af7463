"""May it be trusted: error and coverage of past forecasts by lead and hour of week, and the hours that went worst."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from headway.status.expectations import LEVELS, Pairs
from headway.status.wire import Document, instant

LEADS_S = (300, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Upper ends of the buckets of lead time."""
SCORED_LEAD_S = 3600.0
"""Hours of the week and worst hours are judged at leads up to an hour: about what scaling needs."""
WORST = 5


def by_lead(pairs: Pairs) -> list[Document]:
    """Return error and coverage per bucket of lead time: WAPE, bias and coverage as fractions."""
    known = ~np.isnan(pairs.came) & ~np.isnan(pairs.expected[:, :, 1])
    rows, low = [], 0
    for high in LEADS_S:
        chosen = known & (pairs.leads_s > low) & (pairs.leads_s <= high)
        low = high
        if chosen.any():
            rows.append({"lead_s": high, **_scores(pairs, chosen)})
    return rows


def _scores(pairs: Pairs, chosen: NDArray[np.bool_]) -> Document:
    came, median = pairs.came[chosen], pairs.expected[:, :, 1][chosen]
    actual = float(came.sum())
    coverage = {}
    for column, level in enumerate(LEVELS):
        values = pairs.expected[:, :, column][chosen]
        usable = ~np.isnan(values)
        coverage[f"{level:g}"] = float((came[usable] <= values[usable]).mean()) if usable.any() else None
    naive = {}
    for name, values in pairs.naive.items():
        theirs = values[chosen]
        usable = ~np.isnan(theirs)
        below = float(came[usable].sum())
        naive[name] = float(np.abs(theirs - came)[usable].sum()) / below if below > 0 else None
    return {
        "points": int(chosen.sum()),
        "wape": float(np.abs(median - came).sum()) / actual if actual > 0 else None,
        "bias": float((median - came).sum()) / actual if actual > 0 else None,
        "coverage": coverage,
        "naive_wape": naive,
    }


def by_hour(pairs: Pairs, timezone: str) -> list[Document]:
    """Return WAPE and coverage of q95 by local hour of the week (0 is Monday midnight) at leads up to an hour."""
    chosen = _near(pairs)
    if not chosen.any():
        return []
    hours = _hours_of_week(_instants(pairs)[chosen], timezone)
    came, median = pairs.came[chosen], pairs.expected[:, :, 1][chosen]
    high = pairs.expected[:, :, LEVELS.index(0.95)][chosen]
    errors = np.bincount(hours, np.abs(median - came), 168)
    actual, points = np.bincount(hours, came, 168), np.bincount(hours, minlength=168)
    covered = np.bincount(hours, came <= high, 168)
    return [
        {
            "hour": int(h),
            "wape": float(errors[h] / actual[h]) if actual[h] > 0 else None,
            "coverage": float(covered[h] / points[h]),
            "points": int(points[h]),
        }
        for h in np.flatnonzero(points)
    ]


def worst(pairs: Pairs, windows: Sequence[tuple[datetime, datetime, str]] = ()) -> list[Document]:
    """Return the hours with the largest error at leads up to an hour, and what was different in them.

    Parameters
    ----------
    pairs
        Expectations beside what came.
    windows
        Pre-scaling windows and events with their text; an hour within one says so.
    """
    chosen = _near(pairs)
    if not chosen.any():
        return []
    hours = (_instants(pairs)[chosen] // 3600).astype(np.int64)
    first = int(hours.min())
    came, median = pairs.came[chosen], pairs.expected[:, :, 1][chosen]
    errors = np.bincount(hours - first, np.abs(median - came))
    counts = np.bincount(hours - first)
    total, said = np.bincount(hours - first, came), np.bincount(hours - first, median)
    week = pairs.naive["last week"][chosen]
    there = ~np.isnan(week)
    weeks = np.bincount(hours[there] - first, week[there], len(counts))
    seen = np.bincount(hours[there] - first, minlength=len(counts))
    found = []
    for h in np.argsort(-errors / np.maximum(counts, 1))[:WORST]:
        if counts[h] == 0 or errors[h] == 0:
            continue
        at = datetime.fromtimestamp((first + int(h)) * 3600, UTC)
        mean, expected = total[h] / counts[h], said[h] / counts[h]
        inside = [text for begin, end, text in windows if begin <= at < end]
        found.append(
            {
                "from": instant(at),
                "came": round(float(mean), 3),
                "expected": round(float(expected), 3),
                "wape": float(errors[h] / total[h]) if total[h] > 0 else None,
                "cause": _cause(float(mean), float(expected), float(weeks[h] / seen[h]) if seen[h] else None, inside),
            }
        )
    return found


EVEN = 0.02
"""An hour's sum that is so near to what was expected erred within the hour."""


def _cause(came: float, expected: float, last_week: float | None, inside: list[str]) -> str:
    if expected > 0:
        change = came / expected - 1
        said = f"{100 * abs(change):.0f} % {'more' if change > 0 else 'less'} than expected"
        if abs(change) < EVEN:
            said, last_week = "as many as expected over the hour, unevenly within it", None
    else:
        said = "records where none were expected"
    if inside:
        return f"{said}, within {inside[0]}"
    if last_week is None:  # nothing to be unlike
        return said
    if last_week > 0 and abs(came - last_week) < 0.5 * abs(came - expected):
        return f"{said}; the week before was closer"
    if came > expected and not 0.8 <= came / max(last_week, 1e-9) <= 1.25:
        return f"{said}, and unlike the week before: if it comes again, name it with headway prescale"
    return said


def reliability(pairs: Pairs) -> Document:
    """Return, per kept level, the share of what came at or below it, over all leads."""
    chosen = ~np.isnan(pairs.came) & ~np.isnan(pairs.expected[:, :, 1])
    coverage: Any = _scores(pairs, chosen)["coverage"] if chosen.any() else {}
    return {level: share for level, share in coverage.items() if share is not None}


def _near(pairs: Pairs) -> NDArray[np.bool_]:
    limit = np.maximum(SCORED_LEAD_S, pairs.step_s)[:, None]
    chosen: NDArray[np.bool_] = ~np.isnan(pairs.came) & ~np.isnan(pairs.expected[:, :, 1]) & (pairs.leads_s <= limit)
    return chosen


def _instants(pairs: Pairs) -> NDArray[np.float64]:
    return pairs.origins[:, None] + pairs.leads_s - pairs.step_s[:, None]


def _hours_of_week(at: NDArray[np.float64], timezone: str) -> NDArray[np.int64]:
    zone = ZoneInfo(timezone)
    hours, inverse = np.unique((at // 900).astype(np.int64), return_inverse=True)
    local = [datetime.fromtimestamp(int(h) * 900, zone) for h in hours]
    return np.array([t.weekday() * 24 + t.hour for t in local], dtype=np.int64)[inverse]

"""Seconds from a decision to useful capacity, measured: it ends when the wanted members have committed records.

It does not end with the next metric tick, nor with a pod that runs: start, assignment and catch-up belong to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

DEFAULT_LEAD_TIME = timedelta(seconds=120)
"""Until something else is known."""
QUANTILE = 0.9
"""Members must be there in time nine times out of ten; the tenth is what the plan's margin is for."""
KEPT = 20
"""The latest so many measurements count."""


class LeadTimeOrigin(StrEnum):
    """Where a lead time comes from."""

    CONFIGURED = "configured"
    MEASURED = "measured"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class LeadTime:
    """A lead time, where it comes from, and how sure it is (0 … 1; configured is 1)."""

    value: timedelta
    origin: LeadTimeOrigin
    confidence: float
    measured: int = 0


def lead_time(
    measured: Sequence[timedelta], configured: timedelta | None = None, default: timedelta = DEFAULT_LEAD_TIME
) -> LeadTime:
    """Return the lead time to plan with: what the user set, else the measured 90 % quantile, else a default.

    Examples
    --------
    >>> lead_time([timedelta(seconds=s) for s in (40, 50, 60)]).value
    datetime.timedelta(seconds=60)
    >>> lead_time([]).origin
    <LeadTimeOrigin.DEFAULT: 'default'>
    """
    if configured is not None:
        return LeadTime(configured, LeadTimeOrigin.CONFIGURED, 1.0, len(measured))
    latest = sorted(measured[-KEPT:])
    if not latest:
        return LeadTime(default, LeadTimeOrigin.DEFAULT, 0.0)
    at = math.ceil(QUANTILE * len(latest)) - 1
    return LeadTime(latest[at], LeadTimeOrigin.MEASURED, len(latest) / (len(latest) + 3.0), len(latest))

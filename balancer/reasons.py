"""Why a plan is what it is, in the words that people read. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from balancer.decision import Frame, Wanted
from forecaster.forecast import Forecast


def reasons_for(
    want: Wanted,
    frame: Frame,
    trusted: Forecast | None,
    distrust: str | None,
    careful: Sequence[str],
    waits: Sequence[str],
    log_margin: float,
    replicas: int,
    requested: int,
    size: int,
    told: str | None,
    full: str | None,
) -> list[str]:
    """Return why: what is planned from, what is asked for beyond it, what is done, and what that waits for.

    Parameters
    ----------
    want, frame
        Demand and need of each cell, and within which limits.
    trusted, distrust
        The forecast that is planned with, or why there is none.
    careful, waits
        What forbids a fall; what stabilization waits for.
    log_margin
        Online correction of the margin, in logs.
    replicas, requested, size
        What is asked for now, what the target is set to, and what demand alone asks for.
    told, full
        Who else decided the size (a window, an override); what keeps it from being more.
    """
    reasons = [distrust] if distrust else []
    near = float(want.demand[: frame.reached, 0].max())
    peak, said = float(want.demand.max()), rate_in_words(near)
    if trusted is not None:
        reasons.append(
            f"{trusted.method} ({trusted.rung.value}): {said} records/s now, {rate_in_words(peak)} within 6 h"
        )
        if log_margin > 0.01:
            reasons.append(f"margin raised by {math.expm1(log_margin):.0%} after surprises")
        if want.floor[0] >= near * 0.999 > 0:
            floor = rate_in_words(float(want.floor[0]))
            reasons.append(f"the rate seen and its trend ask for {floor} records/s, more than the forecast")
    else:
        reasons.append(f"planned from what is seen: {said} records/s to serve")
    if want.drain[0] > 0:
        reasons.append(f"{rate_in_words(float(want.drain[0]))} records/s more to drain the backlog")
    if replicas > requested:
        why = told or f"needed within the lead time of {frame.lead_s:.0f} s"
        reasons.append(f"{requested} → {replicas} members: {why}")
    elif replicas < requested:
        reasons.append(f"{requested} → {replicas} members: {told or 'forecast and observation agree that fewer do'}")
    elif size == requested or told:
        who = "1 member stays" if replicas == 1 else f"{replicas} members stay"
        reasons.append(f"{who}: {told or full or 'a change would cost more than it saves'}")
    return [*reasons, *waits, *careful]


def rate_in_words(rate: float) -> str:
    """Return records/s as people write them: no exponents, no digits that mean nothing.

    Examples
    --------
    >>> [rate_in_words(r) for r in (11470.3, 1234567.0, 99.96, 12.34, 0.0123, 0.0)]
    ['11,470', '1,235,000', '100', '12.3', '0.0123', '0']
    """
    if rate <= 0:
        return "0"
    digits = 4 if rate >= 1000 else 3
    place = digits - 1 - int(np.floor(np.log10(rate)))
    rounded = round(rate, place)
    return f"{rounded:,.0f}" if rounded >= 100 or place <= 0 else f"{rounded:.{place}f}".rstrip("0").rstrip(".")

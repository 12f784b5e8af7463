"""What pre-scaling windows ask of a plan: at once to the second, in each cell of its horizon beforehand. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from balancer.bounding import FULL
from balancer.demand import CELLS
from balancer.plan import BoundKind, WindowShare
from balancer.policy import ScalingPolicy
from balancer.prescaling import Span, effects

_MINUTES = range(int(CELLS.horizon_s // 60))


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What windows ask for, now and in each cell.

    Parameters
    ----------
    low, high
        Fewest and most members, shape (cells,). A cell that windows cover in part needs what any of its minutes needs
        and may have what any of them may; the first one may have what is allowed now.
    factor
        By which the forecast is multiplied, shape (cells,).
    least
        Fewest members at this instant, -1 where nothing is asked for.
    exact
        The size that is asked for at this instant; None where none is.
    """

    low: NDArray[np.intp]
    high: NDArray[np.intp]
    factor: NDArray[np.float64]
    least: int = -1
    exact: int | None = None

    @property
    def says(self) -> str:
        """Why a size is what it is because of the windows that act now."""
        what = "allows no more" if self.exact is None else "asks for this size"
        return f"a pre-scaling window {what}"

    def held(self, replicas: int, least: int, most: int) -> int:
        """Return a size as the windows that act now let it be; ``least`` and ``most`` hold against them."""
        size = self.exact if self.exact is not None else min(replicas, int(self.high[0]))
        return min(max(size, least), max(most, least))

    def cut(self, most: int, policy: ScalingPolicy) -> str | None:
        """Return why members that windows ask for now do not come, where policy and partitions allow ``most``."""
        if self.least <= max(most, policy.min_replicas):
            return None
        kind = BoundKind.PARTITION if most < policy.max_replicas else BoundKind.MAX_REPLICAS
        return f"{most} members instead of the {self.least} of a pre-scaling window: {FULL[kind]}"


def asked(windows: Sequence[Span], now: datetime) -> Asked:
    """Lay windows over a plan's horizon.

    Parameters
    ----------
    windows
        As :func:`balancer.prescaling.spans` gives them for the horizon.
    now
        Aware UTC.

    Examples
    --------
    A floor counts from the beginning of its first cell on, so that it is ready in time; an exact size and a ceiling
    count from their first second on:

    >>> from datetime import UTC
    >>> from balancer.prescaling import Rule, spans
    >>> now = datetime(2026, 1, 5, 9, tzinfo=UTC)
    >>> rule = Rule(start=now + timedelta(minutes=4), end=now + timedelta(minutes=10), replicas=2)
    >>> windows = spans([rule], now, now + timedelta(hours=6))
    >>> soon, then = asked(windows, now), asked(windows, now + timedelta(minutes=4))
    >>> soon.low[:3].tolist(), soon.held(9, 1, 64), then.held(9, 1, 64)
    ([2, 2, -1], 9, 2)
    """
    ahead = effects(windows, [now + timedelta(minutes=k) for k in _MINUTES])
    starts = (CELLS.starts_s // 60).astype(np.int64)
    low, high, factor = (np.maximum.reduceat(each, starts) for each in (ahead.low, ahead.high, ahead.factor))
    high[0] = ahead.high[0]
    exact = int(ahead.exact[0])
    return Asked(low, high, factor, int(ahead.low[0]), exact if exact >= 0 else None)


def shares(
    windows: Sequence[Span], now: datetime, need: Callable[[Asked | None], NDArray[np.int64]]
) -> tuple[WindowShare, ...]:
    """Return each window's share in a plan: what is needed within it, and what would be if it were not there.

    Parameters
    ----------
    windows
        Those that touch the horizon.
    now
        Aware UTC.
    need
        Members to request in each cell, shape (cells,), under what windows ask for, or under none.
    """
    if not windows:
        return ()
    under = need(asked(windows, now))
    found = []
    for at, span in enumerate(windows):
        others = [*windows[:at], *windows[at + 1 :]]
        inside = _inside(span, now)
        bare = need(asked(others, now) if others else None)
        found.append(
            WindowShare(span.rule.text, span.start, span.end, int(under[inside].max()), int(bare[inside].max()))
        )
    return tuple(found)


def _inside(span: Span, now: datetime) -> NDArray[np.bool_]:
    """Return the cells that lie in a window as a whole; where there is none, the one in which it begins."""
    begins, ends = (span.start - now).total_seconds(), (span.end - now).total_seconds()
    inside: NDArray[np.bool_] = (CELLS.starts_s >= begins) & (CELLS.starts_s + np.array(CELLS.widths_s) <= ends)
    if span.start <= now:
        inside[0] = True
    if not inside.any():
        inside[np.searchsorted(CELLS.starts_s, begins, side="right") - 1] = True
    return inside

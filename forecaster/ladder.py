"""The ladder: the best method that can answer, and why the better ones could not.

own model → shipped zero-shot model → grid state → last week → yesterday → last value with a margin → none. A rung that
has too little history says so and is passed over; one that fails or answers nonsense is passed over with what it did.
The rung in use is always in the forecast, and so are the reasons.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Self

import numpy as np

from forecaster.extra_seasons import ExtraSeasons
from forecaster.forecast import Forecast, ForecastResult, NoForecast, Rung
from forecaster.methods.base import DEFAULT_LEVELS, Method
from forecaster.methods.catalogue import make_method
from forecaster.series import ArrivalSeries

ORDER = (Rung.OWN_MODEL, Rung.ZERO_SHOT, Rung.GRID_STATE, Rung.LAST_WEEK, Rung.YESTERDAY, Rung.LAST_VALUE)
"""Best first."""

UNTRAINED = {
    Rung.GRID_STATE: "median_blend",
    Rung.LAST_WEEK: "last_week",
    Rung.YESTERDAY: "yesterday",
    Rung.LAST_VALUE: "last_value",
}
"""What answers on the rungs that need no artefact, by the catalogue's names."""

STALE_AFTER = timedelta(hours=1)
"""When nothing was recorded for this long, no rung above last week is asked: their features look at the last hour."""


ZERO_SHOT_NEEDS = timedelta(days=2)
"""Younger streams are better off with yesterday than with the shipped model (`benchmarks/results/zero_shot.json`)."""


class Ladder:
    """A method made of methods; ``auto`` on the command line.

    Parameters
    ----------
    own
        Method of the stream's own: fitted, or to be fitted by :meth:`fit`; None while there is none.
    zero_shot
        The shipped model, already fitted; None where it is not there.
    start
        Best rung that may answer; a gate that demotes a model moves this down.
    passed_over
        Reasons, by rung, why it is not there (an artefact that was refused, a gate that closed).

    Examples
    --------
    >>> from forecaster.timegrid import TimeGrid
    >>> h = ArrivalSeries("t", TimeGrid(3600), 0, (0,), np.full((1, 6), 7.0), np.full((1, 6), True))
    >>> f = Ladder().predict(h, 24)
    >>> f.rung, f.reasons[0]
    (<Rung.LAST_VALUE: 'last_value'>, 'own_model: none is trained for this stream')
    """

    name = "auto"

    def __init__(
        self,
        own: Method | None = None,
        zero_shot: Method | None = None,
        *,
        start: Rung = Rung.OWN_MODEL,
        passed_over: dict[Rung, str] | None = None,
    ):
        self.own = own
        self.zero_shot = zero_shot
        self.start = start
        self.passed_over = dict(passed_over or {})

    def fit(self, histories: Sequence[ArrivalSeries]) -> Self:
        """Fit the own method; the other rungs learn nothing."""
        if self.own is not None:
            self.own = copy.deepcopy(self.own).fit(histories)
        return self

    def predict(
        self, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> ForecastResult:
        """Ask rung after rung; the answer names the rung, the method and every reason on the way down."""
        reasons: list[str] = []
        possible = []
        stale = self._stale(history)
        for rung in ORDER:
            method = self._method(rung)
            why = self.passed_over.get(rung)
            if why is None and ORDER.index(rung) < ORDER.index(self.start):
                why = f"not allowed; the best that is allowed is {self.start}"
            if why is None and method is None:
                why = "none is trained for this stream" if rung is Rung.OWN_MODEL else "not installed"
            if why is None and stale and ORDER.index(rung) < ORDER.index(Rung.LAST_WEEK):
                why = stale
            if why is None and rung is Rung.ZERO_SHOT and _span(history) < ZERO_SHOT_NEEDS:
                why = f"needs {ZERO_SHOT_NEEDS.days} d of history, there are {_span(history) / timedelta(days=1):.2f} d"
            if why is not None or method is None:
                reasons.append(f"{rung}: {why}")
                continue
            result = self._asked(method, history, horizon_steps, levels)
            if isinstance(result, Forecast):
                notes = [stale] if stale and stale not in " ".join(reasons) else []
                return replace(result, rung=rung, reasons=(*reasons, *notes, *result.reasons))
            reasons.append(f"{rung}: {result.reason}")
            possible += [result.possible_from] if result.possible_from is not None else []
        return NoForecast(
            history.topic, history.end, "; ".join(reasons) or "no rung may answer", min(possible, default=None)
        )

    def _method(self, rung: Rung) -> Method | None:
        if rung is Rung.OWN_MODEL:
            return self.own
        method = self.zero_shot if rung is Rung.ZERO_SHOT else make_method(UNTRAINED[rung])
        seasonal = rung in (Rung.ZERO_SHOT, Rung.GRID_STATE) and method is not None
        return ExtraSeasons(method) if seasonal and method is not None else method

    @staticmethod
    def _asked(method: Method, history: ArrivalSeries, horizon_steps: int, levels: Sequence[float]) -> ForecastResult:
        """Ask one method; whatever it raises is a reason to step down, because a lower rung can still answer."""
        try:
            return method.predict(history, horizon_steps, levels)
        except Exception as exc:
            return NoForecast(history.topic, history.end, f"{method.name} failed: {type(exc).__name__}: {exc}")

    @staticmethod
    def _stale(history: ArrivalSeries) -> str | None:
        seen = np.flatnonzero(history.known.any(axis=0))
        if seen.size == 0:
            return None
        age = (history.steps - 1 - int(seen[-1])) * history.grid.step
        last = history.grid.start_of(history.first_index + int(seen[-1]) + 1)
        return f"nothing was recorded since {last:%Y-%m-%d %H:%M} UTC" if age > STALE_AFTER else None


def _span(history: ArrivalSeries) -> timedelta:
    """Return how long ago the first step was recorded."""
    seen = history.known.any(axis=0)
    return (history.steps - int(seen.argmax())) * history.grid.step if seen.any() else timedelta(0)

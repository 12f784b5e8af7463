"""One call a tick: forecast a topic, score what was said before, and let the gate choose what is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from forecaster.drift import DriftPolicy, drift
from forecaster.errors import StoreError
from forecaster.forecast import Forecast, ForecastResult, Rung
from forecaster.gate import GatePolicy, Verdict, verdict
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.scorekeeping import Scorekeeper
from forecaster.series import ArrivalSeries
from forecaster.serving import ForecastService

JUDGE_AGAIN_AFTER = timedelta(minutes=5)
"""How long a verdict holds: it is of a day, and nine days of a dozen series need not be read at every tick."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a tick gets.

    Parameters
    ----------
    result
        What is served: the candidate while the gate is open, the best naive rung's forecast while it is closed.
    candidate
        What the best rung says; it is scored whether it is served or not, so that it can come back.
    verdict
        The gate's word; None while the topic was never recorded or its scores cannot be read.
    problem
        Why scores could not be kept this time, if so.
    """

    result: ForecastResult
    candidate: ForecastResult
    verdict: Verdict | None
    problem: str | None = None


class ForecastDesk:
    """Forecasts of recorded topics, scored and gated.

    Parameters
    ----------
    service
        Makes forecasts.
    scores
        Keeps scores.
    gate, drifting
        Policies.

    Examples
    --------
    >>> from datetime import UTC
    >>> from forecaster.stores.memory import MemorySeriesStore
    >>> store = MemorySeriesStore()
    >>> desk = ForecastDesk(ForecastService(store), Scorekeeper(store))
    >>> desk.forecast("orders", datetime(2026, 1, 5, tzinfo=UTC), timedelta(hours=1)).verdict is None
    True
    """

    def __init__(
        self,
        service: ForecastService,
        scores: Scorekeeper,
        gate: GatePolicy | None = None,
        drifting: DriftPolicy | None = None,
    ) -> None:
        self.service = service
        self._scores = scores
        self._gate = gate or GatePolicy()
        self._drifting = drifting or DriftPolicy()
        self._verdicts: dict[str, tuple[datetime, Verdict | None]] = {}

    def forecast(
        self, topic: str, now: datetime, horizon: timedelta, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> Served:
        """Forecast, score and gate; parameters and errors are those of :meth:`ForecastService.forecast`."""
        seen = self.service.look(topic, now)
        candidate = self.service.forecast(topic, now, horizon, levels, seen=seen)
        problem = None if seen is None else self._keep_scores(seen.history, candidate)
        try:
            word = self._verdict(topic, now)
        except StoreError as exc:
            return Served(candidate, candidate, None, f"scores cannot be read: {exc}")
        if word is None or word.rung is Rung.OWN_MODEL:
            return Served(candidate, candidate, word, problem)
        result = self.service.forecast(topic, now, horizon, levels, word.rung, seen)
        if isinstance(result, Forecast):
            result = replace(result, reasons=(f"gate: {word.reasons[0]}", *result.reasons))
        return Served(result, candidate, word, problem)

    def drift(self, topic: str, now: datetime) -> str | None:
        """Return what drifted in a topic, or None; raises :class:`forecaster.errors.StoreError`."""
        log = self._scores.log(topic, now)
        return None if log is None else drift(log, now, self._drifting)

    def _verdict(self, topic: str, now: datetime) -> Verdict | None:
        """Return the gate's word, asked again every few minutes: it looks by the hour."""
        kept = self._verdicts.get(topic)
        if kept is None or not timedelta(0) <= now - kept[0] < JUDGE_AGAIN_AFTER:
            log = self._scores.log(topic, now)
            kept = self._verdicts[topic] = (now, None if log is None else verdict(log, now, self._gate))
        return kept[1]

    def _keep_scores(self, history: ArrivalSeries, candidate: ForecastResult) -> str | None:
        """Settle older forecasts and note a new one; a store that refuses scores must not stop forecasts."""
        try:
            self._scores.settle(history)
        except StoreError as exc:
            return f"scores cannot be kept: {exc}"
        finally:
            if isinstance(candidate, Forecast):
                self._scores.note(candidate)
        return None

"""One call a tick: forecast a topic, score what was said before, and let the gate choose what is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from forecaster.drift import DriftPolicy, ScoreLog, drift
from forecaster.errors import StoreError
from forecaster.forecast import Forecast, ForecastResult, Rung
from forecaster.gate import GatePolicy, Verdict, verdict
from forecaster.methods.base import DEFAULT_LEVELS
from forecaster.scorekeeping import Scorekeeper
from forecaster.serving import ForecastService

READ_AGAIN_AFTER = timedelta(minutes=5)
"""How long a score log that was read serves: nine days of a dozen series need not be read at every tick."""


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
        self._logs: dict[str, tuple[datetime, ScoreLog | None]] = {}

    def forecast(
        self, topic: str, now: datetime, horizon: timedelta, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> Served:
        """Forecast, score and gate; parameters and errors are those of :meth:`ForecastService.forecast`."""
        candidate = self.service.forecast(topic, now, horizon, levels)
        problem = self._keep_scores(topic, now, candidate)
        try:
            log = self._log(topic, now)
        except StoreError as exc:
            return Served(candidate, candidate, None, f"scores cannot be read: {exc}")
        if log is None:
            return Served(candidate, candidate, None, problem)
        word = verdict(log, now, self._gate)
        if word.rung is Rung.OWN_MODEL:
            return Served(candidate, candidate, word, problem)
        result = self.service.forecast(topic, now, horizon, levels, start=word.rung)
        if isinstance(result, Forecast):
            result = replace(result, reasons=(f"gate: {word.reasons[0]}", *result.reasons))
        return Served(result, candidate, word, problem)

    def drift(self, topic: str, now: datetime) -> str | None:
        """Return what drifted in a topic, or None; raises :class:`forecaster.errors.StoreError`."""
        log = self._scores.log(topic, now)
        return None if log is None else drift(log, now, self._drifting)

    def _log(self, topic: str, now: datetime) -> ScoreLog | None:
        """Return the score log, read again every few minutes: the gate looks by the hour."""
        kept = self._logs.get(topic)
        if kept is None or not timedelta(0) <= now - kept[0] < READ_AGAIN_AFTER:
            kept = self._logs[topic] = (now, self._scores.log(topic, now))
        return kept[1]

    def _keep_scores(self, topic: str, now: datetime, candidate: ForecastResult) -> str | None:
        """Note a forecast and settle older ones; a store that refuses scores must not stop forecasts."""
        try:
            history = self.service.history(topic, now)
            if history is not None:
                self._scores.settle(history)
        except StoreError as exc:
            return f"scores cannot be kept: {exc}"
        finally:
            if isinstance(candidate, Forecast):
                self._scores.note(candidate)
        return None

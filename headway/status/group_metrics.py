"""What Prometheus reads of every group, made from the board at the moment of reading.

A value that is not known is left out, and a group that is gone leaves nothing behind: a gauge that keeps its last value
would say that all is well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric

from headway.status.board import Board, GroupView

STATES = ("fine", "attention", "acting")


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """A collector over one moment of the board.

    Parameters
    ----------
    board
        The groups.
    now
        Aware UTC; ages are counted to it.

    Examples
    --------
    >>> from datetime import UTC
    >>> board, now = Board(), datetime(2026, 1, 5, tzinfo=UTC)
    >>> _ = board.add("orders", ("orders",))
    >>> board.problem("orders", "arrivals", "no broker answers")
    >>> [s.labels for f in GroupMetrics(board, now).collect() if f.name == "headway_group_problem" for s in f.samples]
    [{'group': 'orders', 'input': 'arrivals'}]
    """

    board: Board
    now: datetime

    def collect(self) -> Iterator[Metric]:
        """Yield one family after the other."""
        views = [v for name in self.board.names if (v := self.board.get(name)) is not None]
        for name, help_, labels, read in (
            ("state", "1 for the state that a group is in: fine, attention or acting.", ("state",), self._state),
            ("mode", "1 for the mode that a group is in: off, recommend, shadow or act.", ("mode",), _mode),
            ("problem", "1 for each input that could not be refreshed.", ("input",), self._problems),
            ("input_age_seconds", "Age of an input of a group.", ("input",), self._ages),
            ("lag_records", "Lag of the partitions whose lag is known.", (), _lag),
            ("arrival_rate", "Arrival rate of the partitions whose rate is known, records per second.", (), _rate),
            ("known_ratio", "Share of partitions whose lag or arrival rate is known.", ("series",), _known),
            ("replicas", "Members of a group: working, requested of the target, planned.", ("kind",), _replicas),
            ("held", "1 while the plan holds what is there.", (), _held),
            ("paused", "1 while actuation is paused.", (), _paused),
            ("forecast_may_act", "1 while the gate lets the forecast act.", (), _gate),
            ("forecast_wape_ratio", "Rolling WAPE of the forecast in use.", (), _wape),
            ("forecast_coverage_ratio", "Share of arrivals at or below the 0.95 quantile.", (), _coverage),
        ):  # fmt: skip
            family = GaugeMetricFamily(f"headway_group_{name}", help_, labels=["group", *labels])
            for view in views:
                for values, value in read(view):
                    family.add_metric([view.name, *values], value)
            yield family

    def _state(self, view: GroupView) -> Iterable[tuple[tuple[str, ...], float]]:
        return [((state,), float(view.state == state)) for state in STATES]

    def _problems(self, view: GroupView) -> Iterable[tuple[tuple[str, ...], float]]:
        return [((kind,), 1.0) for kind in sorted(view.problems)]

    def _ages(self, view: GroupView) -> Iterable[tuple[tuple[str, ...], float]]:
        return [((kind,), max((self.now - at).total_seconds(), 0.0)) for kind, at in sorted(view.at.items())]


Samples = Iterable[tuple[tuple[str, ...], float]]


def _mode(view: GroupView) -> Samples:
    return [((view.mode,), 1.0)]


def _lag(view: GroupView) -> Samples:
    lag, coverage = view.snapshot.lag if view.snapshot is not None else (0, 0.0)
    return [((), float(lag))] if coverage else []


def _rate(view: GroupView) -> Samples:
    rate, coverage = view.snapshot.arrival_rate if view.snapshot is not None else (0.0, 0.0)
    return [((), rate)] if coverage else []


def _known(view: GroupView) -> Samples:
    if view.snapshot is None:
        return []
    return [(("lag",), view.snapshot.lag[1]), (("arrival_rate",), view.snapshot.arrival_rate[1])]


def _replicas(view: GroupView) -> Samples:
    snapshot, plan = view.snapshot, view.plan
    values = {
        "working": None if snapshot is None else snapshot.working,
        "requested": None if snapshot is None else snapshot.replicas,
        "planned": None if plan is None else plan.replicas,
    }
    return [((kind,), float(value)) for kind, value in values.items() if value is not None]


def _held(view: GroupView) -> Samples:
    return [] if view.plan is None else [((), float(bool(view.plan.hold)))]


def _paused(view: GroupView) -> Samples:
    return [((), float(view.paused))]


def _gate(view: GroupView) -> Samples:
    return [((), float(view.gate[0]))]


def _wape(view: GroupView) -> Samples:
    value = view.scores.get("wape")
    return [] if value is None else [((), value)]


def _coverage(view: GroupView) -> Samples:
    value = view.scores.get("coverage")
    return [] if value is None else [((), value)]

"""What a running Headway is made of, as its HTTP interface and jobs see it; built by :mod:`headway.wiring`."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from balancer.actuators.board import ScalerBoard
from balancer.plans.base import PlanStore
from forecaster.stores.base import SeriesStore
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.errors import HeadwayError, UnknownGroup
from headway.operation.operations import Operations
from headway.status.board import Board, GroupView
from headway.status.expectations import Expectations
from headway.status.metrics import Metrics
from headway.status.timeline import Timeline
from headway.status.totals import FORTNIGHT, TotalsCache
from headway.status.wire import Document
from headway.work.children import Children


class JobList(Protocol):
    """The scheduled jobs, as far as a reader is concerned."""

    def status(self) -> Sequence[Document]:
        """Return each job's name, group, last result, duration and next run."""
        ...


class WhatIf(Protocol):
    """Plans a group again under changed assumptions, without any effect."""

    def __call__(self, group: str, changes: Mapping[str, Any], now: datetime) -> Document:
        """Return the plan as a document; raises our own errors when the changes cannot be meant."""
        ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Application:
    """Everything that runs, by role. ``clock`` is what counts as now: wall time, or a replay's."""

    settings: Settings
    store: SeriesStore
    plans: PlanStore
    board: Board
    operations: Operations
    metrics: Metrics
    clock: Callable[[], datetime] = _utc_now
    url: str = ""
    """Of the store, for child processes that open it themselves."""
    thinkers: Children | None = None
    """Where what-ifs are computed; None: here."""
    trainers: Children | None = None
    """Where models and knobs are trained; None: here."""
    jobs: JobList | None = None
    what_if: WhatIf | None = None
    look: Callable[[str], None] = lambda group: None
    """Puts what is seen of a group now on the board."""
    target_gate: Callable[[str], Sequence[str]] = lambda group: ()
    """Group → what is wrong with its target: while anything is, a configured mode ``act`` only recommends."""
    act_gate: Callable[[str], Sequence[str]] = lambda group: ()
    """Group → what speaks against mode ``act``; empty when nothing does."""
    audit_entries: Callable[[datetime | None, int], list[Document]] = lambda since, limit: []
    moves: Callable[[str], list[Document]] = lambda group: []
    posts: ScalerBoard = field(default_factory=ScalerBoard)
    """The numbers that scalers poll."""
    holder: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    ready: bool = False
    forecasts_folder: Path | None = None
    """Where past forecasts are written down; None keeps them in memory alone."""
    timeline: Timeline = field(init=False)
    expectations: Expectations = field(init=False)
    totals: TotalsCache = field(init=False)
    long_totals: TotalsCache = field(init=False)
    recalled: set[str] = field(default_factory=set)
    """Groups whose earlier decisions were read back into the timeline."""
    peaks: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    """Group → (hour in which it was read, busiest hour's mean rate of the last weeks)."""
    delays: dict[str, tuple[int, list[tuple[datetime, float]]]] = field(default_factory=dict)
    """Group → (minute in which it was read, the last day's delays in seconds)."""

    discover: Callable[[], None] = lambda: None
    """Looks for groups that a pattern of the settings fits, and has new ones watched."""

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.board)
        self.expectations = Expectations(self.board, self.forecasts_folder)
        self.totals = TotalsCache(self.store)
        self.long_totals = TotalsCache(self.store, FORTNIGHT)

    def show(self, name: str, topics: tuple[str, ...]) -> None:
        """Put a group on the board, in the mode that was set last.

        Raises
        ------
        PlanStoreUnavailable
            If nobody says which mode that is; the group is on the board in the configured one.
        """
        view = self.board.add(name, topics, self.settings.mode(name))
        view.capacity_per_member = self.settings.policy(name).capacity_per_member
        view.mode = str(self.operations.mode(name, self.settings.mode(name)))

    def view(self, name: str) -> GroupView:
        """Return a group's view.

        Raises
        ------
        UnknownGroup
            With the nearest known names.
        """
        view = self.board.get(name)
        if view is None:
            raise UnknownGroup(name, difflib.get_close_matches(name, self.board.names, n=3, cutoff=0.3))
        return view

    def set_mode(self, name: str, mode: Mode, by: str, now: datetime) -> None:
        """Set a group's mode; ``act`` only when nothing speaks against it.

        Raises
        ------
        UnknownGroup
        HeadwayError
            If a gate is closed; the message says which and what to do.
        """
        self.view(name)
        if mode is Mode.ACT:
            against = self.act_gate(name)
            if against:
                raise HeadwayError(f"group {name} may not act yet: {'; '.join(against)}")
        self.operations.set_mode(name, mode, by, now)
        self.board.update(name, "mode", lambda v: setattr(v, "mode", str(mode)))

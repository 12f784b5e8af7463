"""What stands between a plan and its target: pauses, approvals, frozen windows, gates, and the leader's token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from balancer.actuators.base import Actuation, Actuator
from balancer.errors import TargetRefused
from balancer.plans.base import LeaderToken
from balancer.prescaling import Rule, spans
from forecaster.topics import GroupId
from headway.configuration.sections import Mode
from headway.status.wire import instant

if TYPE_CHECKING:
    from headway.application import Application

INTENT = "intent"
"""Under which name a leader keeps what it is about to ask of a target."""


class Guarded:
    """A target behind the operators' word: asked again at the very moment of acting, so that a pause stops all.

    Parameters
    ----------
    target
        What is scaled.
    app
        Whose operators decide, and whose plan store knows who leads.
    needs_approval
        Whether a change waits for a person.
    """

    def __init__(self, target: Actuator, app: Application, needs_approval: bool) -> None:
        self._target, self._app, self._needs_approval = target, app, needs_approval
        self.token: LeaderToken | None = None
        """Of the tick under way. The intent is written with it last of all, so that a leader that was slow finds out
        before the target hears of it."""

    def current(self, group: GroupId) -> int | None:
        """Return what the target is set to."""
        return self._target.current(group)

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Pass it on, unless acting is paused or the plan waits for a person.

        Raises
        ------
        TargetRefused
            If it is; the target stays as it is.
        StaleLeader
            If another instance leads by now.
        """
        operations = self._app.operations
        pause = operations.paused(group, now)
        if pause is not None:
            until = "it is lifted" if pause.until is None else f"{pause.until:%Y-%m-%d %H:%M} UTC"
            raise TargetRefused(f"paused by {pause.by} until {until}")
        if self._needs_approval and not operations.approved(group, replicas, now):
            raise TargetRefused(f"{replicas} members wait for approval: headway approve --group {group}")
        if self.token is not None:
            self._app.plans.learn(group, INTENT, {"replicas": replicas, "at": instant(now)}, self.token)
        return self._target.scale(group, replicas, now, leaving=leaving)

    def close(self) -> None:
        """Close the target."""
        self._target.close()


class ActGate:
    """Mode ``act`` of one group is honoured only once everything that ``doctor`` would say of its target is well.

    Asked again while something speaks against it, at most every ``again``; once it was open it stays open: from
    then on a target that is away is an error of the tick, which holds.
    """

    def __init__(self, against: Callable[[], Sequence[str]], again: timedelta = timedelta(seconds=10)) -> None:
        self._against, self._again = against, again
        self._asked: datetime | None = None
        self._reasons: tuple[str, ...] | None = None

    def honoured(self, mode: Mode, now: datetime) -> tuple[Mode, tuple[str, ...]]:
        """Return the mode that holds, and what speaks against acting where that is why."""
        if mode is not Mode.ACT:
            return mode, ()
        due = self._asked is None or not timedelta(0) <= now - self._asked < self._again
        if self._reasons is None or (self._reasons and due):
            self._reasons, self._asked = tuple(self._against()), now
        return (Mode.RECOMMEND, self._reasons) if self._reasons else (mode, ())


def frozen(windows: Sequence[Rule], there: int | None, now: datetime) -> tuple[Rule, ...]:
    """Return the windows in which nothing is scaled in, as rules that ask for what is there, if they act now.

    Examples
    --------
    >>> from datetime import UTC
    >>> nine, ten = datetime(2026, 1, 5, 9, tzinfo=UTC), datetime(2026, 1, 5, 10, tzinfo=UTC)
    >>> sale = Rule(start=nine, end=ten, at_least=0, name="sale")
    >>> [rule.text for rule in frozen([sale], 7, nine)]
    ['sale, no scale-in: at least 7 from 2026-01-05T09:00:00+00:00 to 2026-01-05T10:00:00+00:00']
    >>> frozen([sale], 7, ten)
    ()
    """
    if there is None:
        return ()
    acting = (span for span in spans(windows, now, now + timedelta(seconds=1)) if span.start <= now < span.end)
    return tuple(replace(span.rule, at_least=there, name=f"{span.rule.name}, no scale-in") for span in acting)

"""What operators may do: mode, pause, approval, pre-scaling. Shared by terminal and HTTP.

Everything is kept as a setting in the plan store, so that it survives restarts and every instance sees it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from balancer.errors import PolicyRefused
from balancer.plans.base import PlanStore
from balancer.prescaling import Rule, is_over, rule_from_json, rule_to_json
from forecaster.topics import GroupId
from headway.configuration.sections import Mode
from headway.errors import HeadwayError, NotReady
from headway.operation.audit import Audit
from headway.status.wire import instant, parse_instant

ALL = "*"
APPROVAL_HOLDS = timedelta(hours=1)
MAX_WINDOWS = 1000
CHANGE_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Prescale:
    """A pre-scaling rule with its name tag and the group that it is for (``"*"``: every group)."""

    id: str
    group: str
    rule: Rule

    def to_document(self) -> dict[str, Any]:
        """Return the body that makes this again."""
        return {"id": self.id, "group": self.group, **rule_to_json(self.rule)}


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause and what it covers; ``until`` None lasts until it is lifted."""

    scope: str
    until: datetime | None
    by: str


def _unreadable(what: str, remedy: str) -> NotReady:
    return NotReady(f"what the store holds of {what} cannot be read, so that nothing is done; {remedy}")


class Operations:
    """Reads and changes what operators decided."""

    def __init__(self, plans: PlanStore, audit: Audit) -> None:
        self._plans, self._audit = plans, audit

    def mode(self, group: str, configured: Mode) -> Mode:
        """Return the mode that holds: an operator's word over the settings file's."""
        kept = self._plans.setting(group, "mode")
        if kept is None:
            return configured
        try:
            return Mode(kept["mode"])
        except (KeyError, ValueError, TypeError):
            raise _unreadable(f"the mode of {group}", f"headway mode --group {group} sets it anew") from None

    def set_mode(self, group: str, mode: Mode, by: str, now: datetime) -> None:
        """Set a group's mode."""
        self._plans.set_setting(group, "mode", {"mode": str(mode), "by": by, "at": instant(now)})
        self._audit.write(now, by, "mode", group, {"mode": str(mode)})

    def pause(self, scope: str, by: str, now: datetime, duration: timedelta | None = None) -> Pause:
        """Stop acting for one group, or for all with scope ``"*"``; for a while, or until it is lifted.

        Raises
        ------
        ValueError
            If the while has no length: it would be over before anybody looked.
        """
        if duration is not None and duration <= timedelta(0):
            raise ValueError("a pause of no length pauses nothing; say 2h, or leave it out to pause until it is lifted")
        until = None if duration is None else now + duration
        value = {"until": None if until is None else instant(until), "by": by, "at": instant(now)}
        self._plans.set_setting(scope, "pause", value)
        self._audit.write(now, by, "pause", scope, {"until": value["until"]})
        return Pause(scope, until, by)

    def resume(self, scope: str, by: str, now: datetime) -> None:
        """Lift a pause."""
        self._plans.set_setting(scope, "pause", None)
        self._audit.write(now, by, "resume", scope, {})

    def paused(self, group: str, now: datetime) -> Pause | None:
        """Return the pause that holds for a group now: its own, or everybody's."""
        for scope in (ALL, group):
            kept = self._plans.setting(scope, "pause")
            if kept is None:
                continue
            try:
                until = None if kept.get("until") is None else parse_instant(kept["until"])
            except (ValueError, TypeError):  # a pause of which the end is lost holds until somebody lifts it
                until = None
            if until is None or now < until:
                return Pause(scope, until, str(kept.get("by", "unknown")))
        return None

    def approve(self, group: str, version: int | None, by: str, now: datetime) -> int:
        """Approve a published plan, the latest by default; return its version.

        Raises
        ------
        NotReady
            If there is no plan, or the named one has been replaced.
        """
        latest = self._plans.latest(GroupId(group))
        if latest is None:
            raise NotReady(f"group {group} has no plan to approve yet")
        if version is not None and version != latest[0]:
            raise NotReady(f"plan {version} of group {group} has been replaced by {latest[0]}; look at it first")
        replicas = latest[1].replicas
        value = {"version": latest[0], "replicas": replicas, "by": by, "at": instant(now)}
        self._plans.set_setting(group, "approval", value)
        self._audit.write(now, by, "approve", group, {"version": latest[0], "replicas": replicas})
        return latest[0]

    def approved(self, group: str, replicas: int, now: datetime) -> bool:
        """Tell whether somebody approved setting the group to ``replicas`` within the last hour."""
        kept = self._plans.setting(group, "approval")
        if kept is None or kept.get("replicas") != replicas:
            return False
        try:
            return now - parse_instant(kept["at"]) <= APPROVAL_HOLDS
        except (KeyError, ValueError, TypeError):
            return False

    def prescales(self) -> list[Prescale]:
        """Return all windows and events."""
        return _windows(self._plans.setting(ALL, "prescale"))

    def rules(self, group: str) -> tuple[Rule, ...]:
        """Return the rules of one group, those for all groups included."""
        return tuple(w.rule for w in self.prescales() if w.group in (ALL, group))

    def add_prescale(self, body: Mapping[str, Any], by: str, now: datetime) -> Prescale:
        """Add a window or an event; those that are over for good are dropped on the way.

        Raises
        ------
        PolicyRefused
            If it cannot be meant.
        """
        group = body.get("group", ALL)
        if not isinstance(group, str) or not group:
            raise PolicyRefused(f"group={group!r} must be a name, or * for all groups")
        window = Prescale(uuid.uuid4().hex[:12], group, rule_from_json(body))

        def added(windows: list[Prescale]) -> list[Prescale]:
            present = [w for w in windows if not is_over(w.rule, now)]
            if len(present) >= MAX_WINDOWS:
                raise HeadwayError(f"there are {MAX_WINDOWS} pre-scaling windows already; remove old ones first")
            return [*present, window]

        self._change(added)
        self._audit.write(now, by, "prescale add", window.group, window.to_document())
        return window

    def remove_prescale(self, id: str, by: str, now: datetime) -> bool:
        """Remove a window or event; False if there is none of that id."""
        before = self._change(lambda windows: [w for w in windows if w.id != id])
        if all(w.id != id for w in before):
            return False
        self._audit.write(now, by, "prescale remove", ALL, {"id": id})
        return True

    def _change(self, change: Callable[[list[Prescale]], list[Prescale]]) -> list[Prescale]:
        """Change the list of windows, whoever else changes it at the same time; return what it was before."""
        for _ in range(CHANGE_ATTEMPTS):
            kept = self._plans.setting(ALL, "prescale")
            before = _windows(kept)
            after = change(before)
            if after == before:
                return before
            if self._plans.swap_setting(ALL, "prescale", kept, {"windows": [w.to_document() for w in after]}):
                return before
        raise HeadwayError("the pre-scaling windows are being changed by others all the time; try again")


def _windows(kept: Mapping[str, Any] | None) -> list[Prescale]:
    try:
        return [Prescale(str(w["id"]), str(w["group"]), rule_from_json(w)) for w in (kept or {}).get("windows", [])]
    except (KeyError, TypeError, AttributeError, PolicyRefused) as error:
        raise _unreadable(f"the pre-scaling windows ({error})", "add them anew") from error

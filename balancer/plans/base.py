"""The port through which plans, decisions and what was learned are kept and shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from balancer.plan import ScalingPlan
from forecaster.topics import GroupId


@dataclass(frozen=True, slots=True)
class LeaderToken:
    """Proof of leading a group: a counter that only grows, and a nonce, since counters can come back."""

    group: GroupId
    number: int
    nonce: str
    holder: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One tick's choice with everything needed to compute it again."""

    id: str
    group: GroupId
    at: datetime
    mode: str
    plan: ScalingPlan
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able summary of the inputs; all of them are attached under the decision's id while they are kept."""
    actuation: Mapping[str, Any] | None = None


class PlanStore(Protocol):
    """Published plans, decision log, learned values, and the lease of each group's leader.

    Every write of a leader carries its token; a stale one raises :class:`balancer.errors.StaleLeader`.
    All methods raise :class:`balancer.errors.PlanStoreUnavailable` when nobody answers.
    """

    def lead(self, group: GroupId, holder: str, ttl: timedelta) -> LeaderToken | None:
        """Take or renew the lease of a group; None when somebody else holds it."""
        ...

    def resign(self, token: LeaderToken) -> None:
        """Give the lease back, if it is still ours."""
        ...

    def publish(self, plan: ScalingPlan, token: LeaderToken) -> int:
        """Replace the group's plan atomically; return its version, which only grows."""
        ...

    def latest(self, group: GroupId) -> tuple[int, ScalingPlan] | None:
        """Return the published plan and its version."""
        ...

    def record(self, decision: Decision, token: LeaderToken) -> None:
        """Append to the decision log."""
        ...

    def decisions(self, group: GroupId, since: datetime, limit: int = 1000) -> Sequence[Decision]:
        """Return decisions from ``since`` on, oldest first."""
        ...

    def decision(self, group: GroupId, id: str) -> Decision | None:
        """Return one decision by its id; None if it is not kept (any more)."""
        ...

    def attach(self, group: GroupId, name: str, body: bytes, keep: timedelta, token: LeaderToken) -> None:
        """Keep some bytes of a group for a while; what is there under that name already is kept for longer at most."""
        ...

    def attached(self, group: GroupId, name: str) -> bytes | None:
        """Return what was attached under a name, None once its time is over."""
        ...

    def learn(self, group: GroupId, name: str, value: Mapping[str, Any], token: LeaderToken) -> None:
        """Keep something learned (capacity, lead time, knobs, dwell state) under a name."""
        ...

    def learned(self, group: GroupId, name: str) -> Mapping[str, Any] | None:
        """Return what was learned under a name."""
        ...

    def setting(self, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return an operator's setting (mode, pause, prescale windows) of a group or of ``"*"``."""
        ...

    def set_setting(self, scope: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Keep an operator's setting, or drop it with None. Needs no token: people may always pause."""
        ...

    def swap_setting(
        self, scope: str, name: str, expected: Mapping[str, Any] | None, value: Mapping[str, Any] | None
    ) -> bool:
        """Keep or drop a setting if it still is what :meth:`setting` said; False (nothing done) if it is not.

        Two operators who change one list at once would else undo each other: read, change, swap, again on False.
        """
        ...

    def close(self) -> None:
        """Give up connections; everything kept stays."""
        ...

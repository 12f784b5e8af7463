"""Plans, decisions and leases in this process's memory: for simulations, notebooks and tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from balancer.errors import StaleLeader
from balancer.plan import ScalingPlan
from balancer.plans import codec
from balancer.plans.base import Decision, LeaderToken
from forecaster.topics import GroupId


class MemoryPlanStore:
    """The :class:`balancer.plans.base.PlanStore` that needs nothing.

    What is kept passes through JSON, as in any other store, so that what cannot be kept elsewhere fails here too.

    Parameters
    ----------
    keep_decisions
        Age, counted from a group's newest decision, at which its decisions are dropped.
    clock
        What the store takes for now, aware UTC; leases end by it.

    Examples
    --------
    >>> store = MemoryPlanStore()
    >>> token = store.lead(GroupId("orders"), "a", timedelta(seconds=10))
    >>> store.lead(GroupId("orders"), "b", timedelta(seconds=10)) is None
    True
    >>> store.learn(GroupId("orders"), "capacity", {"records_per_s": 500.0}, token)
    >>> store.learned(GroupId("orders"), "capacity")
    {'records_per_s': 500.0}
    """

    def __init__(
        self,
        keep_decisions: timedelta = timedelta(days=14),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keep = keep_decisions
        self._clock = clock
        self._lock = threading.RLock()
        self._leases: dict[GroupId, tuple[LeaderToken, datetime]] = {}
        self._numbers: dict[GroupId, int] = {}
        self._fences: dict[GroupId, LeaderToken] = {}
        self._plans: dict[GroupId, tuple[int, str]] = {}
        self._decisions: dict[GroupId, dict[str, tuple[datetime, str]]] = {}
        self._learned: dict[tuple[GroupId, str], str] = {}
        self._attached: dict[tuple[GroupId, str], tuple[datetime, bytes]] = {}
        self._settings: dict[tuple[str, str], str] = {}

    def lead(self, group: GroupId, holder: str, ttl: timedelta) -> LeaderToken | None:
        """Take or renew the lease of a group (:meth:`PlanStore.lead`)."""
        with self._lock:
            now = self._clock()
            lease = self._leases.get(group)
            if lease is not None and lease[1] > now:
                if lease[0].holder != holder:
                    return None
                token = lease[0]
            else:
                number = self._numbers.get(group, 0) + 1
                self._numbers[group] = number
                token = LeaderToken(group, number, secrets.token_hex(8), holder)
                self._fences[group] = token
            self._leases[group] = (token, now + ttl)
            return token

    def resign(self, token: LeaderToken) -> None:
        """Give the lease back, if it is still ours."""
        with self._lock:
            if self._fences.get(token.group) == token:
                del self._fences[token.group]
                self._leases.pop(token.group, None)

    def publish(self, plan: ScalingPlan, token: LeaderToken) -> int:
        """Replace the group's plan; return its version."""
        with self._lock:
            self._check(plan.group, token)
            version = self._plans.get(plan.group, (0, ""))[0] + 1
            self._plans[plan.group] = (version, codec.dumps(codec.plan_to_json(plan)))
            return version

    def latest(self, group: GroupId) -> tuple[int, ScalingPlan] | None:
        """Return the published plan and its version."""
        with self._lock:
            have = self._plans.get(group)
        return None if have is None else (have[0], codec.plan_from_json(codec.loads(have[1])))

    def record(self, decision: Decision, token: LeaderToken) -> None:
        """Append to the decision log; the same id again replaces what it held."""
        with self._lock:
            self._check(decision.group, token)
            log = self._decisions.setdefault(decision.group, {})
            log[decision.id] = (decision.at, codec.dumps(codec.decision_to_json(decision)))
            oldest = max(at for at, _ in log.values()) - self._keep
            for old in [id_ for id_, (at, _) in log.items() if at < oldest]:
                del log[old]

    def decisions(self, group: GroupId, since: datetime, limit: int = 1000) -> Sequence[Decision]:
        """Return decisions from ``since`` on, oldest first."""
        with self._lock:
            log = sorted(self._decisions.get(group, {}).values(), key=lambda entry: entry[0])
        return [codec.decision_from_json(codec.loads(text)) for at, text in [e for e in log if e[0] >= since][:limit]]

    def decision(self, group: GroupId, id: str) -> Decision | None:
        """Return one decision by its id."""
        with self._lock:
            kept = self._decisions.get(group, {}).get(id)
        return None if kept is None else codec.decision_from_json(codec.loads(kept[1]))

    def attach(self, group: GroupId, name: str, body: bytes, keep: timedelta, token: LeaderToken) -> None:
        """Keep some bytes of a group for a while."""
        with self._lock:
            self._check(group, token)
            now = self._clock()
            for old in [k for k, (until, _) in self._attached.items() if until <= now]:
                del self._attached[old]
            until, _ = self._attached.get((group, name), (now, b""))
            self._attached[group, name] = (max(until, now + keep), body)

    def attached(self, group: GroupId, name: str) -> bytes | None:
        """Return what was attached under a name."""
        with self._lock:
            until, body = self._attached.get((group, name), (self._clock(), b""))
            return body if until > self._clock() else None

    def learn(self, group: GroupId, name: str, value: Mapping[str, Any], token: LeaderToken) -> None:
        """Keep something learned under a name."""
        with self._lock:
            self._check(group, token)
            self._learned[group, name] = codec.dumps(value)

    def learned(self, group: GroupId, name: str) -> Mapping[str, Any] | None:
        """Return what was learned under a name."""
        with self._lock:
            text = self._learned.get((group, name))
        return None if text is None else codec.loads(text)

    def setting(self, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return an operator's setting."""
        with self._lock:
            text = self._settings.get((scope, name))
        return None if text is None else codec.loads(text)

    def set_setting(self, scope: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Keep an operator's setting, or drop it with None."""
        with self._lock:
            if value is None:
                self._settings.pop((scope, name), None)
            else:
                self._settings[scope, name] = codec.dumps(value)

    def swap_setting(
        self, scope: str, name: str, expected: Mapping[str, Any] | None, value: Mapping[str, Any] | None
    ) -> bool:
        """Keep or drop a setting if it still is what was read; False if it is not."""
        with self._lock:
            if self._settings.get((scope, name)) != (None if expected is None else codec.dumps(expected)):
                return False
            self.set_setting(scope, name, value)
            return True

    def close(self) -> None:
        """Nothing to give up."""

    def _check(self, group: GroupId, token: LeaderToken) -> None:
        have = self._fences.get(group)
        if have != token or token.group != group:
            leader = f"{have.holder} ({have.number})" if have else "nobody"
            raise StaleLeader(f"{group}: token {token.number} of {token.holder} is stale; {leader} leads now")

"""The numbers that scalers poll, kept young by the leader and known to every instance.

KEDA asks whichever instance its Service picks, and a number that nobody affirms grows too old to be given out. So the
leader of a group affirms its number with every good tick and keeps it in the plan store; the others, and the next life
of this one, read it there with its true age.
"""

from __future__ import annotations

from datetime import datetime

from balancer.actuators.board import Posted, ScalerBoard
from balancer.control import Tick
from balancer.plans.base import LeaderToken, PlanStore
from forecaster.topics import GroupId
from headway.status.wire import instant, parse_instant

POSTED = "posted"


class Posting:
    """One group's number on the board.

    Parameters
    ----------
    posts
        The board that KEDA and the external metrics API read.
    plans
        Where the number is kept for the other instances.
    group
        Whose.
    """

    def __init__(self, posts: ScalerBoard, plans: PlanStore, group: GroupId) -> None:
        self._posts, self._plans, self._group = posts, plans, group

    def affirm(self, tick: Tick, now: datetime, token: LeaderToken) -> None:
        """Say the number again after a good tick; after one that held, it grows older until it is no longer given out.

        An operator's no (a pause, a frozen window, a missing approval) is no failure: what is there is affirmed.
        """
        plan, snapshot = tick.plan, tick.snapshot
        if plan is None or snapshot is None or plan.hold or tick.version is None:
            return
        number = snapshot.replicas if tick.error is not None or tick.actuation is None else tick.actuation.replicas
        if number is None:
            return
        self._posts.scale(self._group, number, now)
        self._plans.learn(self._group, POSTED, {"replicas": number, "at": instant(now)}, token)

    def follow(self) -> None:
        """Take over what the leader, or an earlier life, said last; a newer number stays."""
        kept = self._plans.learned(self._group, POSTED)
        try:
            posted = None if kept is None else Posted(int(kept["replicas"]), parse_instant(kept["at"]))
        except (KeyError, ValueError, TypeError):  # what cannot be read is no number
            return
        if posted is not None:
            self._posts.restore(self._group, posted)

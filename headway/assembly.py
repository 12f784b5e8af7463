"""The jobs of all groups over an application's parts, and which instance runs what is to be run once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from balancer.errors import BalancerError, PlanStoreUnavailable
from balancer.plans.base import LeaderToken
from forecaster.errors import ForecasterError
from forecaster.topics import GroupId
from headway.wiring import open_forecasts, opener

if TYPE_CHECKING:
    from balancer.actuators.board import ScalerBoard
    from headway.application import Application
    from headway.configuration.settings import Settings
    from headway.status.board import GroupView
    from headway.work.jobs import Jobs

RECORDING = GroupId("@record")
"""Leads of this "group" record for all: one instance at a time looks at the offsets."""


def assemble(
    app: Application,
    stack: ExitStack,
    posts: ScalerBoard,
    *,
    only: str | None = None,
    read_settings: Callable[[], Settings] | None = None,
) -> Jobs:
    """Make the jobs of all groups over an application's parts.

    Parameters
    ----------
    app, stack, posts
        What runs, what ends with it, and the numbers that scalers poll.
    only
        One group, for one pass of one job.
    read_settings
        Reads the settings again while we run; None where they stay as they are.

    Raises
    ------
    HeadwayError
        If a group cannot be wired as it is configured.
    """
    from headway.consumers.planned_groups import moves_of
    from headway.consumers.routed_topics import lead_topics
    from headway.operation.doctor_planned import against_target
    from headway.work.jobs import Jobs
    from headway.work.roster import REFRESH_EVERY, Roster
    from headway.work.workshop import Recording, Workshop

    settings = app.settings
    held: dict[str, LeaderToken] = {}
    stack.callback(_give_back, app, held)
    jobs = Jobs(app.board, app.metrics, app.clock, may_run=partial(_may_run, app, held))
    recording = Recording(app) if opener(settings) is not None else None
    if recording is not None:
        stack.callback(recording.close)
    shop = Workshop(app, jobs, posts, open_forecasts(settings, app.store, app=app), recording)

    roster = Roster(app, jobs, shop.make, read_settings, None if recording is None else recording.cluster)
    stack.callback(roster.close)
    for name in settings.named_groups if only is None else {only} & {*settings.named_groups}:
        group = settings.group(name)
        roster.add(name, group.topics if group is not None else ())
    if recording is not None:
        step = min((settings.grid(g).step for g in settings.groups), default=timedelta(seconds=60))
        recording.watch({GroupId(name): entry.topics for name, entry in roster.entries.items()})
        roster.changed = lambda: recording.watch({GroupId(n): e.topics for n, e in roster.entries.items()})
        jobs.every("record", None, step, recording.job)
    if read_settings is not None:
        jobs.every("groups", None, REFRESH_EVERY, roster.refresh)
    lead_topics(settings, app.board, jobs)
    app.jobs, app.discover, app.posts = jobs, roster.discover, posts
    app.moves = lambda group: moves_of(app.settings, group)
    app.what_if = lambda group, changes, now: roster.entries[group].runner.what_if(changes, now)
    app.look = lambda group: roster.entries[group].runner.look()
    app.target_gate = lambda name: against_target(app.settings, name)
    app.act_gate = lambda name: (*app.target_gate(name), *_closed(app.view(name)))
    return jobs


def _may_run(app: Application, held: dict[str, LeaderToken], job: str, group: str | None) -> bool:
    """Whether this instance may run a job now: what writes for all runs on one instance at a time."""
    if job == "record":
        step = min((app.settings.grid(g).step for g in app.settings.groups), default=timedelta(seconds=60))
        try:
            return _leads(app, held, RECORDING, step * 1.1)
        except (PlanStoreUnavailable, ForecasterError):  # what is recorded waits in memory until the store is back
            return True
    if group is not None and job in ("retrain", "seal", "prune"):
        from headway.work.jobs import LEASE_TICKS

        return _leads(app, held, GroupId(group), LEASE_TICKS * app.settings.jobs.act_every)
    return True


def _leads(app: Application, held: dict[str, LeaderToken], group: GroupId, ttl: timedelta) -> bool:
    token = app.plans.lead(group, app.holder, ttl)
    if token is not None:
        held[group] = token
    return token is not None


def _give_back(app: Application, held: dict[str, LeaderToken]) -> None:
    """Let another instance go on at once with what this one did for all."""
    for token in held.values():
        with suppress(BalancerError, ForecasterError):  # then the lease ends by itself
            app.plans.resign(token)


def _closed(view: GroupView) -> tuple[str, ...]:
    may_act, reasons = view.gate
    return () if may_act else tuple(f"gate: {reason}" for reason in reasons)

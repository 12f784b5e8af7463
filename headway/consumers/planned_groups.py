"""Planned groups in ``serve``: their workers as members, the plan that is followed, and their moves for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from balancer.leases.base import LeaseStoreError
from balancer.plan import ScalingPlan
from balancer.policy import AssignmentKind
from forecaster.topics import GroupId
from headway.application import Application
from headway.configuration.sections import Mode
from headway.configuration.settings import Settings
from headway.consumers.handover_document import move_documents
from headway.consumers.moving import Caretaker, open_leases, open_planned_group
from headway.errors import NotReady
from headway.operation.doctor_planned import against_moving
from headway.status.wire import Document

if TYPE_CHECKING:
    from balancer.observers.base import GroupObserver
    from headway.work.jobs import Jobs

FOLLOWED_FOR = timedelta(minutes=5)
"""An older plan is not followed: whoever made it may be gone, and the group may have changed since."""


def with_workers(app: Application, name: str, observer: GroupObserver, jobs: Jobs) -> GroupObserver:
    """Return an observer that sees a planned group's workers, and have its mover run beside the jobs.

    In every mode but ``off`` the mover grants what is free, fences the silent and carries out moves asked for by
    hand; in ``act`` it follows the plan. Other groups keep their observer. So does a planned group whose leases would
    die with the embedded store: the board says so, and nothing is moved.
    """
    from balancer.observers.planned import PlannedGroupObserver

    settings = app.settings
    if settings.policy(name).assignment is not AssignmentKind.PLANNED:
        return observer
    if settings.store_url() is None:
        app.board.problem(name, "moves", f"groups.{name} is planned: set store.url, leases die with the embedded store")
        return observer
    parts = open_planned_group(settings, name)

    def tell(why: str | None) -> None:
        if why is not None:
            app.board.problem(name, "moves", why)
        elif "moves" in app.view(name).problems:
            app.board.update(name, "moves", lambda view: None)

    def off() -> str | None:
        return "mode is off" if app.operations.mode(name, settings.mode(name)) is Mode.OFF else None

    caretaker = Caretaker(parts, lambda: plan_to_follow(app, name), off, lambda: against_moving(settings, name), tell)
    jobs.beside(caretaker.start, caretaker.stop, name)
    return PlannedGroupObserver(observer, parts.store, lambda: app.view(name).capacity_per_member, parts.source.racks)


def plan_to_follow(app: Application, name: str) -> tuple[int, ScalingPlan] | None:
    """Return the published plan with its version, if the group acts, nobody paused it, and the plan is fresh."""
    now = app.clock()
    if app.operations.mode(name, app.settings.mode(name)) is not Mode.ACT or app.operations.paused(name, now):
        return None
    latest = app.plans.latest(GroupId(name))
    if latest is None or now - latest[1].made_at > FOLLOWED_FOR or _waits_for_approval(app, name, latest[1], now):
        return None
    return latest


def _waits_for_approval(app: Application, name: str, made: ScalingPlan, now: datetime) -> bool:
    """Whether a person has yet to allow the plan's number: until then nobody is drained for it either."""
    own, seen = app.settings.group(name), app.view(name).snapshot
    if own is None or not own.approval or (seen is not None and seen.replicas == made.replicas):
        return False
    return not app.operations.approved(GroupId(name), made.replicas, now)


def moves_of(settings: Settings, group: str) -> list[Document]:
    """Return a group's last moves, the latest first; none of a group that is not planned.

    Raises
    ------
    NotReady
        If the store does not tell.
    """
    if settings.policy(group).assignment is not AssignmentKind.PLANNED or settings.store_url() is None:
        return []
    leases = open_leases(settings, group)
    try:
        return move_documents(leases)
    except LeaseStoreError as error:
        raise NotReady(f"moves of {group}: {error}") from error
    finally:
        leases.close()

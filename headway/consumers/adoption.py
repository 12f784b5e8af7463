"""An ordinary group under the plan, and back: rehearsed first, then done, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from balancer.leases.base import LeaseState, LeaseStoreLost
from balancer.moves.duties import foreign
from headway.consumers.moving import PlannedGroupParts, wait_for


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and how it stands: ``done``, ``due`` or ``waiting``."""

    step: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``adopt`` and ``release`` answer."""

    state: str
    steps: tuple[Step, ...]


def adopt(
    parts: PlannedGroupParts,
    *,
    dry_run: bool,
    within_s: float,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Put an ordinary group under the plan without loss.

    Offsets stay under the group's id, so nothing is copied: the ordinary consumers stop (they commit as they do at
    any stop), the books are founded, and planned workers begin at what was committed.
    """
    source = parts.source
    topics = source.partitions()
    count = sum(n for _, n in topics.values())
    commits = source.commits()
    missing = sorted(set(source.topics) - set(topics))
    if missing:
        step = Step("topics", "waiting", f"{', '.join(missing)} does not exist: create it, or correct the settings")
        return Outcome("refused", (step,))
    strangers = foreign(source.members(), source.group)
    named = ", ".join(sorted({f"{m.client_id} at {m.host}" for m in strangers})[:5])
    steps = [
        Step("offsets", "done", f"{len(commits)} of {count} partitions have a commit; the others follow start_at"),
        Step(
            "stop consumers",
            "due" if strangers else "done",
            f"{len(strangers)} ordinary members must stop: {named}" if strangers else "no ordinary member is left",
        ),
    ]
    if dry_run:
        steps.append(Step("found", "due", f"fence every earlier worker, then one lease for each of {count} partitions"))
        steps.append(Step("start workers", "due", "headway worker, or your service with PlannedConsumer"))
        return Outcome("dry_run", tuple(steps))
    end = time.monotonic() + within_s
    while strangers and time.monotonic() < end:
        say(f"waiting for {len(strangers)} ordinary members to stop: {named}")
        time.sleep(1.0)
        strangers = foreign(source.members(), source.group)
    if strangers:
        return Outcome("waiting", tuple(steps))
    steps[1] = Step("stop consumers", "done", "no ordinary member is left")
    view = wait_for(lambda view: len(view.leases) >= count, parts.store, within_s, "the books were not founded")
    if view.released:
        parts.store.set_released(False)
    steps.append(Step("found", "done", f"{len(view.leases)} leases"))
    able = sum(w.may_receive for w in view.workers.values())
    steps.append(Step("start workers", "done" if able else "due", f"{able} workers are ready"))
    return Outcome("adopted", tuple(steps))


def release(parts: PlannedGroupParts, *, dry_run: bool, within_s: float) -> Outcome:
    """Give a group back to its ordinary protocol without loss: workers commit, give up and take no more."""
    try:
        view = parts.store.view()
    except LeaseStoreLost:
        step = Step("books", "waiting", "the group is not under the plan: there is nothing to release")
        return Outcome("refused", (step,))
    held = sum(lease.state is not LeaseState.FREE for lease in view.leases.values())
    live = sum(w.live for w in view.workers.values())
    if dry_run:
        steps = (
            Step("drain", "due", f"{live} workers commit and give up {held} partitions; nobody receives any more"),
            Step("stop workers", "due", f"{live} workers may then be stopped; they hold nothing"),
            Step("start consumers", "due", f"consumers of group {parts.source.group} go on at the committed offsets"),
        )
        return Outcome("dry_run", steps)
    parts.store.set_released(True)
    view = wait_for(
        lambda view: all(lease.state is LeaseState.FREE for lease in view.leases.values()),
        parts.store,
        within_s,
        "not every partition was given up",
    )
    steps = (
        Step("drain", "done", f"{held} partitions were committed and given up"),
        Step("stop workers", "due", f"{sum(w.live for w in view.workers.values())} workers may be stopped now"),
        Step("start consumers", "due", f"consumers of group {parts.source.group} go on at the committed offsets"),
    )
    return Outcome("released", steps)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for machines."""
    steps = [{"step": s.step, "state": s.state, "detail": s.detail} for s in outcome.steps]
    return {"state": outcome.state, "steps": steps}

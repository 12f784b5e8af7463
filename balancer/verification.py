"""Did it work? Each actuation ends in a named state, and the time it took becomes the lead time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from balancer.actuation import Actuation, ActuationState
from balancer.group import GroupSnapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an actuation stands.

    Parameters
    ----------
    actuation
        The actuation, with its state and the detail that a person reads.
    lead_time
        From the request to useful capacity; only for an effective scale-up, and only then a measurement.
    """

    actuation: Actuation
    lead_time: timedelta | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing can change it any more."""
        return self.actuation.state is not ActuationState.PENDING


def verify(
    actuation: Actuation, snapshot: GroupSnapshot, patience: timedelta, requested_since: int | None = None
) -> Verdict:
    """Compare what was asked with what is there.

    Up: effective when so many members are ready and, where there are partitions enough, each ready member owns one (two
    of five that never own any are capacity on paper). Down: effective when no more than so many live. After
    ``patience`` without either it is ineffective, and the detail says what is missing.

    Parameters
    ----------
    actuation
        A pending actuation; one that has ended is returned as it is.
    snapshot
        The group as observed after the request; an older one proves nothing.
    patience
        How long to wait: a multiple of the lead time.
    requested_since
        Replicas asked for by a later actuation, if there is one: this one is then superseded.

    Returns
    -------
    Verdict
        ``lead_time`` ends at the snapshot that first saw every member own something, not at a later tick's end.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from balancer.group import Member
    >>> from forecaster.topics import GroupId, TopicPartition
    >>> noon, group = datetime(2026, 1, 5, 12, tzinfo=UTC), GroupId("orders")
    >>> asked = Actuation(group, noon, 2, 1, ActuationState.PENDING)
    >>> owned = [Member(f"m{p}", (TopicPartition("orders", p),)) for p in range(2)]
    >>> seen = GroupSnapshot(group, noon + timedelta(seconds=40), 2, tuple(owned))
    >>> verify(asked, seen, timedelta(minutes=5)).lead_time
    datetime.timedelta(seconds=40)
    """
    if actuation.state is not ActuationState.PENDING:
        return Verdict(actuation)
    if requested_since is not None and requested_since != actuation.replicas:
        detail = f"superseded by a request for {requested_since}"
        return Verdict(replace(actuation, state=ActuationState.SUPERSEDED, detail=detail))
    waited = snapshot.at - actuation.requested_at
    if waited < timedelta(0):
        return Verdict(actuation)
    missing = _missing(actuation, snapshot)
    if missing is None:
        took = f"{waited.total_seconds():.0f} s"
        effective = replace(actuation, state=ActuationState.EFFECTIVE, detail=f"effective after {took}")
        rose = actuation.previous is not None and actuation.replicas > actuation.previous
        return Verdict(effective, waited if rose else None)
    if waited > patience:
        detail = f"acted, not effective: {missing} after {waited.total_seconds():.0f} s"
        return Verdict(replace(actuation, state=ActuationState.INEFFECTIVE, detail=detail))
    return Verdict(replace(actuation, detail=missing))


def _missing(actuation: Actuation, snapshot: GroupSnapshot) -> str | None:
    """Return what keeps the actuation from being effective, None if nothing does."""
    wanted, members = actuation.replicas, [m for m in snapshot.members if not m.draining]
    if len(members) > wanted:
        return f"{len(members)} members live, {wanted} wanted"
    ready = [m for m in members if m.ready]
    if len(ready) < wanted:
        return f"{len(ready)} of {wanted} members are ready"
    partitions = len(snapshot.partitions) or sum(len(m.partitions) for m in members)
    owning = sum(1 for m in ready if m.partitions)
    if owning < min(wanted, partitions):
        return f"{owning} of {wanted} members own partitions"
    return None

"""What brokers and rights must be, so that fences and offsets hold (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

RECOMMIT_EVERY = timedelta(days=1)
"""How often workers commit held offsets again without traffic, unless they are told otherwise."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One of the topics that carry the promise; None is "not known"."""

    name: str
    replication: int | None
    min_in_sync: int | None
    unclean_election: bool | None


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A cluster as planned groups lean on it."""

    brokers: int
    internal: tuple[InternalTopic, ...] = ()
    offsets_retention: timedelta | None = None
    missing_rights: Mapping[str, str] = field(default_factory=dict)
    """What is needed → what the broker said instead."""
    unlisted: str | None = None
    """Why transactional ids could not be listed; None: they were."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that does not hold; ``closes`` says whether a group must not act while it is so."""

    what: str
    remedy: str
    closes: bool = True


def doubts(facts: BrokerFacts) -> list[Doubt]:
    """Return what speaks against moving partitions on such brokers.

    Examples
    --------
    >>> weak = InternalTopic("__transaction_state", 1, 1, False)
    >>> [d.what for d in doubts(BrokerFacts(3, (weak,), timedelta(days=7)))]
    ['__transaction_state has 1 copy', '__transaction_state is written with 1 in-sync copy']
    >>> [(d.what, d.closes) for d in doubts(BrokerFacts(1, (weak,), timedelta(days=7)))]
    [('there is 1 broker: fences and offsets last as long as its disk', False)]
    """
    found = []
    for need, said in facts.missing_rights.items():
        found.append(Doubt(f"{need}: {said}", f"grant {need} to the planner's and the workers' user"))
    if facts.unlisted is not None:
        text = f"transactional ids cannot be listed, so that no group can be founded: {facts.unlisted}"
        found.append(Doubt(text, "give kafka.properties a login that both clients know (docs/handover.md)"))
    if facts.brokers < 3:
        what = f"there {'is 1 broker' if facts.brokers == 1 else f'are {facts.brokers} brokers'}"
        text = f"{what}: fences and offsets last as long as {'its disk' if facts.brokers == 1 else 'their disks'}"
        found.append(Doubt(text, "run three brokers where records must not be lost", closes=False))
    for topic in facts.internal:
        found += _of_topic(topic, facts.brokers)
    if facts.offsets_retention is not None and facts.offsets_retention < 2 * RECOMMIT_EVERY:
        hours = facts.offsets_retention.total_seconds() / 3600
        text = f"brokers forget offsets {hours:g} h after the last commit, workers repeat theirs every 24 h"
        found.append(Doubt(text, "set offsets.retention.minutes=10080 on the brokers"))
    return found


def _of_topic(topic: InternalTopic, brokers: int) -> list[Doubt]:
    found = []
    many = brokers >= 3
    if many and topic.replication is not None and topic.replication < 3:
        copies = "copy" if topic.replication == 1 else "copies"
        remedy = f"kafka-reassign-partitions.sh: give {topic.name} three replicas"
        found.append(Doubt(f"{topic.name} has {topic.replication} {copies}", remedy))
    if many and topic.min_in_sync is not None and topic.min_in_sync < 2:
        text = f"{topic.name} is written with {topic.min_in_sync} in-sync copy"
        found.append(Doubt(text, f"kafka-configs.sh --topic {topic.name}: min.insync.replicas=2"))
    if topic.unclean_election:
        text = f"{topic.name} allows unclean leader election: a fence may be forgotten"
        found.append(Doubt(text, f"kafka-configs.sh --topic {topic.name}: unclean.leader.election.enable=false"))
    return found

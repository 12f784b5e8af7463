"""A first configuration: what a cluster holds, and the commented ``headway.toml`` that watches it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from forecaster.ingest.base import OffsetReading
from forecaster.topics import GroupId


class ClusterSource(Protocol):
    """What is asked of a cluster."""

    def kinds(self) -> Mapping[GroupId, str]:
        """Return its groups with their kind."""
        ...

    def topics_of(self, group: GroupId) -> Sequence[str]:
        """Return the topics on which a group has committed."""
        ...

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Read offsets and commits."""
        ...


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """One group of the cluster, as two looks showed it.

    Parameters
    ----------
    name, kind, topics
        As the cluster says; no topics where it has not committed.
    partitions
        Of its topics together.
    lag
        Records; None if no partition's is known.
    arrivals, consumed
        Records/s between the looks; None if not known.
    why
        What is not as it should be, and what to do.
    """

    name: str
    kind: str
    topics: tuple[str, ...]
    partitions: int = 0
    lag: int | None = None
    arrivals: float | None = None
    consumed: float | None = None
    why: str | None = None


def look(source: ClusterSource, wait: Callable[[], None], only: Sequence[str] = ()) -> list[SeenGroup]:
    """Look twice at all groups of a cluster and say how fast they are written to and read.

    Parameters
    ----------
    source
        The cluster.
    wait
        Returns after the time between the two looks.
    only
        Names to look at; all by default.

    Raises
    ------
    SourceError
        If the cluster does not answer.
    """
    kinds = {name: kind for name, kind in source.kinds().items() if not only or name in only}
    topics = {name: tuple(source.topics_of(name)) for name in kinds}
    wanted = sorted({topic for names in topics.values() for topic in names})
    asked = [name for name, names in topics.items() if names]
    before = source.read(wanted, asked) if wanted else OffsetReading({})
    if wanted:
        wait()
    after = source.read(wanted, asked) if wanted else OffsetReading({})
    return [_seen(name, kinds[name], topics[name], before, after) for name in sorted(kinds)]


def _seen(name: GroupId, kind: str, topics: tuple[str, ...], before: OffsetReading, after: OffsetReading) -> SeenGroup:
    if not topics:
        why = "has not committed yet: let its consumers read a record, or name its topics by hand"
        return SeenGroup(str(name), kind, (), why=why)
    samples = {tp: sample for tp, sample in after.samples.items() if tp.topic in topics}
    lags, arrivals, consumed = [], [], []
    for tp, now in samples.items():
        was, done = before.samples.get(tp), now.committed.get(name)
        end = now.log_end_offset
        if done is not None and end is not None:
            lags.append(max(end - max(done, now.log_start_offset or 0), 0))
        seconds = (now.at - was.at).total_seconds() if was is not None else 0.0
        if was is None or seconds <= 0:
            continue
        if end is not None and was.log_end_offset is not None and end >= was.log_end_offset:
            arrivals.append((end - was.log_end_offset) / seconds)
        then = was.committed.get(name)
        if done is not None and then is not None and done >= then:
            consumed.append((done - then) / seconds)
    failed = sorted({why for tp, why in after.failures.items() if tp.topic in topics})
    return SeenGroup(
        str(name),
        kind,
        topics,
        sum(after.partitions.get(topic, 0) for topic in topics),
        sum(lags) if lags else None,
        sum(arrivals) if arrivals else None,
        sum(consumed) if consumed else None,
        failed[0] if failed else None,
    )


def text_of(value: str) -> str:
    r"""Return a TOML string.

    Examples
    --------
    >>> text_of('a "b"')
    '"a \\"b\\""'
    """
    return json.dumps(value, ensure_ascii=False)


def key_of(name: str) -> str:
    """Return a name as a TOML key, quoted where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else text_of(name)


def configuration(
    groups: Sequence[SeenGroup],
    *,
    brokers: str,
    store: str | None = None,
    properties: Mapping[str, str] | None = None,
    cluster: str = "main",
    timezone: str = "UTC",
) -> str:
    """Return a commented ``headway.toml``; nothing in it acts.

    Parameters
    ----------
    groups
        Whom to watch; those without topics are written as comments.
    brokers, properties
        How to reach the cluster; secrets belong into files or the environment.
    store
        URL; None for the embedded server.
    cluster, timezone
        Its name, and the zone whose days the load follows.
    """
    lines = [
        "# Headway's configuration, written by headway init. Every key may also be an environment variable:",
        "# HEADWAY_STORE__URL is url of [store]. headway doctor checks it; headway serve runs it.",
        f"cluster = {text_of(cluster)}            # names keys and models; one file a Kafka cluster",
        "",
    ]
    if store is None:
        lines += [
            "# The store is embedded: a server of our own, in the state folder. For several instances or machines:",
            "# [store]",
            '# url = "redis://127.0.0.1:6379/0"    # its password comes from password_file or HEADWAY_STORE__PASSWORD',
        ]
    else:
        lines += [
            "[store]",
            f"url = {text_of(store)}    # a password comes from password_file or HEADWAY_STORE__PASSWORD",
        ]
    lines += ["", "[kafka]", f"bootstrap_servers = {text_of(brokers)}"]
    if properties:
        pairs = ", ".join(f"{text_of(k)} = {text_of(v)}" for k, v in properties.items())
        lines += [f"properties = {{ {pairs} }}    # any librdkafka property; no secrets: password_file, property_files"]
    lines += [
        "",
        "[defaults]                  # every group inherits these, and may say its own",
        'mode = "recommend"          # off | recommend | shadow | act: begin by reading what would be done',
        f"timezone = {text_of(timezone)}          # whose days and weeks the load follows",
        'slo = "60s"                 # a record is late beyond this delay',
        '# start_time = "120s"       # from request to work; absent: learned',
        '# holidays = "DE-BE"        # by country and region; one ahead is forecast as an ordinary day',
        "# price_per_member_hour = 0.12   # then plans and reports speak of money",
    ]
    for group in groups:
        lines += ["", *_section(group)]
    return "\n".join(lines) + "\n"


def _section(group: SeenGroup) -> list[str]:
    facts = [f"{group.kind} group"]
    facts += [f"{group.partitions} partitions"] if group.partitions else []
    facts += [f"lag {group.lag:,}"] if group.lag is not None else []
    facts += [f"{group.arrivals:,.1f} records/s arrive"] if group.arrivals is not None else []
    comment = f"# {', '.join(facts)}" + (f"; {group.why}" if group.why else "")
    mark = "" if group.topics else "# "
    topics = ", ".join(text_of(topic) for topic in group.topics) or '"…"'
    most = str(group.partitions) if group.partitions else "…"
    target = group.name if _TARGET.fullmatch(group.name) else "…"
    return [
        comment,
        f"{mark}[groups.{key_of(group.name)}]",
        f"{mark}topics = [{topics}]",
        "# capacity_per_member = 500.0     # records/s of one member; absent: learned from busy hours",
        f"{mark}max_replicas = {most:<16}# more members than partitions would be idle",
        '# actuator = { kind = "kubernetes", resource = "deployments", namespace = "default", '
        f"name = {text_of(target)} }}",
    ]


_TARGET = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
"""What Kubernetes takes as the name of a Deployment; a group may have any."""


def chosen(groups: Sequence[SeenGroup], answer: str) -> list[SeenGroup]:
    """Return the groups that an answer names: ``all``, numbers from 1, or names, by commas.

    Raises
    ------
    ValueError
        If it names none, or one that is not there.

    Examples
    --------
    >>> seen = [SeenGroup("a", "classic", ("t",)), SeenGroup("b", "classic", ("t",))]
    >>> [g.name for g in chosen(seen, "2")], [g.name for g in chosen(seen, "all")]
    (['b'], ['a', 'b'])
    """
    words = [word.strip() for word in answer.split(",") if word.strip()]
    if words in ([], ["all"]):
        return list(groups)
    names = {group.name: group for group in groups}
    found = []
    for word in words:
        if word in names:
            found.append(names[word])
        elif word.isdigit() and 1 <= int(word) <= len(groups):
            found.append(groups[int(word) - 1])
        else:
            raise ValueError(f"{word!r} is neither a group nor a number from 1 to {len(groups)}")
    return found

"""What ``headway doctor`` asks of the sources: each finding names what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forecaster.errors import SourceError, SourceRefused
from forecaster.ingest.base import OffsetSource
from forecaster.topics import GroupId


class Finding(NamedTuple):
    """One finding; ``remedy`` is empty where nothing needs doing."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def check_source(source: OffsetSource, groups: Mapping[GroupId, Sequence[str]]) -> list[Finding]:
    """Look once at every topic and group: unreachable, refused, unknown, never committed, without leader.

    Parameters
    ----------
    source
        Kafka or Prometheus.
    groups
        Group → its topics.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from forecaster.ingest.base import OffsetReading, OffsetSample
    >>> from forecaster.topics import TopicPartition
    >>> class Quiet:
    ...     def read(self, topics, groups):
    ...         sample = OffsetSample(datetime(2026, 1, 5, tzinfo=UTC), 0, 9, {GroupId("billing"): None})
    ...         return OffsetReading({TopicPartition("orders", 0): sample}, {}, {"orders": 1})
    ...     def close(self): ...
    >>> for finding in check_source(Quiet(), {GroupId("billing"): ["orders"]}):
    ...     print(finding.ok, finding.detail)
    True orders: 1 partitions answer
    False billing has committed nothing on orders
    """
    topics = sorted({topic for its in groups.values() for topic in its})
    try:
        reading = source.read(topics, list(groups))
    except SourceRefused as exc:
        return [Finding("source", False, str(exc), "correct credentials or permissions, then run doctor again")]
    except SourceError as exc:
        return [Finding("source", False, str(exc), "start it, or correct its address in the settings")]
    found: list[Finding] = []
    for topic in topics:
        answered = [tp for tp in reading.samples if tp.topic == topic]
        failed = {tp: why for tp, why in reading.failures.items() if tp.topic == topic}
        if answered:
            found.append(Finding(f"topic {topic}", not failed, f"{topic}: {len(answered)} partitions answer"))
        for why in sorted(set(failed.values())):
            count = sum(1 for w in failed.values() if w == why)
            where = f" ({count} partitions)" if answered else ""
            remedy = "see the message; what is not read stays missing, it is never counted as zero"
            found.append(Finding(f"topic {topic}", False, f"{why}{where}", remedy))
    for group, its in groups.items():
        for topic in its:
            samples = [s for tp, s in reading.samples.items() if tp.topic == topic]
            silent = next((s.why for s in samples if s.why and f"group {group}:" in s.why), None)
            if silent is not None:
                found.append(Finding(f"group {group}", False, silent, "wait for its coordinator, or grant DESCRIBE"))
            elif samples and all(s.committed.get(group) is None for s in samples):
                remedy = (
                    f"check the group's name and that its consumers commit; until then its lag is not known unless "
                    f"{topic} is empty"
                )
                found.append(Finding(f"group {group}", False, f"{group} has committed nothing on {topic}", remedy))
            elif samples:
                have = sum(s.committed.get(group) is not None for s in samples)
                detail = f"{group} has committed on {have} of {len(samples)} partitions of {topic}"
                found.append(Finding(f"group {group}", True, detail))
    return found

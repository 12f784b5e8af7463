"""Names of what is measured: partitions, groups, streams. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

GroupId = NewType("GroupId", str)
"""Name of a consumer group, as Kafka knows it."""


def topic_name(text: str) -> str:
    """Return a name that Kafka takes for a topic.

    Raises
    ------
    ValueError
        If Kafka takes it for none.

    Examples
    --------
    >>> topic_name("orders.eu-1")
    'orders.eu-1'
    >>> topic_name("eu/orders")
    Traceback (most recent call last):
    ValueError: 'eu/orders' is no name of a topic: up to 249 letters, digits, dots, underscores and hyphens
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise ValueError(f"{shown!r} is no name of a topic: up to 249 letters, digits, dots, underscores and hyphens")
    return text


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic.

    Examples
    --------
    >>> str(TopicPartition("orders", 7))
    'orders:7'
    >>> TopicPartition.parse("orders:7")
    TopicPartition(topic='orders', partition=7)
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Read ``topic:partition``.

        Raises
        ------
        ValueError
            If there is no partition number behind the last colon.
        """
        topic, colon, number = text.rpartition(":")
        if not colon or not topic or not number.isdecimal():
            raise ValueError(f"{text!r} is not topic:partition, such as orders:7")
        return cls(topic, int(number))


@dataclass(frozen=True, slots=True, order=True)
class StreamId:
    """One topic of one cluster: the unit that is recorded and forecast together."""

    cluster: str
    topic: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}"

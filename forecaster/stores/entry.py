"""What may be written into a store from outside: names that Kafka takes, counts that can be."""

from __future__ import annotations

from forecaster.errors import InputRefused
from forecaster.topics import topic_name

MOST_RECORDS = 2**53
"""In one step of one partition; beyond it a float no longer tells one record from the next, and a unit is mistaken."""


def recorded_topic(name: str) -> str:
    """Return a topic's name under which a history may be written.

    Raises
    ------
    InputRefused
        If no topic of Kafka can have it.

    Examples
    --------
    >>> recorded_topic("orders")
    'orders'
    """
    try:
        return topic_name(name)
    except ValueError as exc:
        raise InputRefused(f"{exc}; give another name with --topic") from exc

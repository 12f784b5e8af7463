"""What every table log must do: run on the twin in memory and on a real compacted topic."""

from __future__ import annotations

import pytest

from balancer.routing import protocol
from balancer.routing.base import TableLog
from balancer.routing.errors import LeaderSuperseded


def check_table_log(first: TableLog, second: TableLog, topic: str) -> None:
    """Check two views of one log: what one commits the other reads, and a later writer supersedes."""
    assert first.read(topic) is None and first.take(topic) is None
    table = protocol.adopt(topic, "id", 3, "murmur2", ["g"])
    first.append(table)
    assert second.read(topic) == table and second.read(topic + "-other") is None
    assert second.take(topic) == table
    second.append(protocol.register(table, "h"))
    with pytest.raises(LeaderSuperseded):
        first.append(protocol.register(table, "late"))
    found = first.read(topic)
    assert found is not None and found.groups == ("g", "h")

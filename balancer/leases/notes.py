"""Commit notes: what a planned consumer writes beside a committed offset, and reads back from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from balancer.leases.base import Owner


def commit_metadata(owner: Owner, epoch: int, topic_id: str | None = None) -> str:
    """Write what goes beside a committed offset, so that a stray or foreign commit shows.

    Examples
    --------
    >>> commit_metadata(Owner(3, 7, "ab12"), 41)
    '{"e":41,"w":"3#7.ab12"}'
    """
    facts: dict[str, Any] = {"e": epoch, "w": str(owner)}
    if topic_id:
        facts["t"] = topic_id
    return json.dumps(facts, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What a commit's metadata said."""

    epoch: int
    owner: Owner
    topic_id: str | None = None


def read_commit_metadata(text: str | None) -> CommitNote | None:
    """Read what :func:`commit_metadata` wrote; None for anything that is not ours.

    Examples
    --------
    >>> read_commit_metadata('{"e":41,"w":"3#7.ab12"}')
    CommitNote(epoch=41, owner=Owner(instance=3, number=7, nonce='ab12'), topic_id=None)
    >>> read_commit_metadata("somebody else's")
    """
    try:
        facts = json.loads(text or "")
        return CommitNote(int(facts["e"]), Owner.parse(facts["w"]), facts.get("t"))
    except (ValueError, KeyError, TypeError):
        return None

"""What was asked of a scale target, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from forecaster.topics import GroupId


class ActuationState(StrEnum):
    """How an actuation stands, or ended."""

    PENDING = "pending"
    EFFECTIVE = "effective"
    INEFFECTIVE = "ineffective"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Actuation:
    """One request to a target: what was asked, when, and how it stands."""

    group: GroupId
    requested_at: datetime
    replicas: int
    previous: int | None
    state: ActuationState
    detail: str = ""

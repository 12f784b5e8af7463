"""Train an artefact again from its card, and say whether it came out the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forecaster.errors import ArtefactRefused, InputRefused
from forecaster.methods.base import Method
from forecaster.registry import Card, as_bytes, running_versions
from forecaster.series import ArrivalSeries
from forecaster.training import TrainingPolicy, data_digest, trainable


@dataclass(frozen=True, slots=True, eq=False)
class Reproduced:
    """What came of training again.

    Parameters
    ----------
    card
        What was to be made again.
    method
        What was made.
    sha256
        Of its file; that of the card if it is the same to the byte.
    other_versions
        Libraries that have another version here than when the card was written, as ``name written here``.
    """

    card: Card
    method: Method
    sha256: str
    other_versions: tuple[str, ...]

    @property
    def same_bytes(self) -> bool:
        """Whether the file would be the same to the byte."""
        return self.sha256 == self.card.sha256

    def to_dict(self) -> dict[str, Any]:
        """Return what ``headway train --card`` prints."""
        return {
            "version": self.card.version,
            "same_data": True,
            "same_bytes": self.same_bytes,
            "sha256": self.sha256,
            "other_versions": list(self.other_versions),
        }


def reproduce(card: Card, series: ArrivalSeries) -> Reproduced:
    """Train again what a card describes.

    Parameters
    ----------
    card
        Of the artefact.
    series
        The data it was trained on, or more of them: the card's range is cut out.

    Raises
    ------
    ArtefactRefused
        If the card is of an older release and holds no recipe.
    InputRefused
        If these are other data.
    """
    if not card.recipe:
        raise ArtefactRefused(f"{card.version}: its card holds no recipe (an older release wrote it); train anew")
    part = series if series.grid.step_s == card.step_s else series.at_step(card.step_s)
    grid = part.grid
    first, end = (grid.index_of(datetime.fromisoformat(at)) for at in (card.data_start, card.data_end))
    part = part.between(first, end)
    if data_digest(part) != card.data_sha256:
        raise InputRefused(
            f"{card.version} was trained on {card.partitions} partitions from {card.data_start} to {card.data_end} "
            f"in {card.timezone}; these data are not the same ({len(part.partitions)} partitions from "
            f"{part.start.isoformat()} to {part.end.isoformat()} in {grid.timezone})"
        )
    policy = TrainingPolicy.from_recipe(card.recipe)
    method = trainable(policy.method, policy.seed).fit([policy.calendar.usual(part)])
    here = running_versions()
    other = tuple(f"{k} {v} {here[k]}" for k, v in card.versions.items() if k in here and here[k] != v)
    return Reproduced(card, method, hashlib.sha256(as_bytes(method)).hexdigest(), other)

"""The same time yesterday, or the same time last week: what every other method must beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.pathwise import PathwiseMethod


class SeasonalNaive(PathwiseMethod):
    """Repeat the last season.

    Parameters
    ----------
    season
        ``"day"`` repeats yesterday, ``"week"`` repeats last week; the same wall-clock time in either case.

    Examples
    --------
    >>> SeasonalNaive("week").name
    'last_week'
    """

    native_step = True

    def __init__(self, season: Literal["day", "week"] = "day"):
        self.season = season

    @property
    def name(self) -> str:  # type: ignore[override]
        """``yesterday`` or ``last_week``."""
        return "yesterday" if self.season == "day" else "last_week"

    @property
    def rung(self) -> Rung:  # type: ignore[override]
        """Step of the ladder."""
        return Rung.YESTERDAY if self.season == "day" else Rung.LAST_WEEK

    def days_needed(self) -> float:
        """One season."""
        return 1.0 if self.season == "day" else 7.0

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> NDArray[np.float64]:
        """Repeat the last season before each origin, as often as the horizon needs."""
        season = panel.steps_per_day if self.season == "day" else panel.steps_per_week
        logs = panel.logs
        out = np.full((logs.shape[0], len(origins), horizon), np.nan)
        for k, origin in enumerate(origins):
            if origin >= season:
                out[:, k] = logs[:, origin - season + np.arange(horizon) % season]
        return out

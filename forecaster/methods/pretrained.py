"""The shipped model's boosting as one more member, for topics of a few partitions.

A model that learns from a few rows alone has seen a few hundred days; the shipped one has seen hundreds of histories
of other streams. Where rows are many, their own data say more, and it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import Rung
from forecaster.methods.base import LogPanel
from forecaster.methods.boosting import Boosting
from forecaster.methods.pathwise import PathwiseMethod

Floats = NDArray[np.float64]


class Pretrained(PathwiseMethod):
    """What the shipped model's boosting says; see the module. Without a shipped model it says nothing.

    Parameters
    ----------
    most_rows
        Partitions of a topic up to which it is asked.

    Examples
    --------
    >>> Pretrained().paths(LogPanel(np.zeros((1, 48)), 24), [48], 24).shape  # NaN: it is not fitted
    (1, 1, 24)
    """

    name = "pretrained"
    rung = Rung.OWN_MODEL

    def __init__(self, most_rows: int = 8):
        self.most_rows = most_rows

    def days_needed(self) -> float:
        """One day: younger lags are missing values."""
        return 1.0

    def fit_panels(self, panels: Sequence[LogPanel]) -> Self:
        """Keep the shipped trees, so that an artefact goes on saying the same when another model is shipped."""
        from forecaster.zero_shot import shipped  # the registry opens artefacts, and artefacts hold methods

        self.model_: Boosting | None = None
        if max(p.logs.shape[0] for p in panels) <= self.most_rows + 1:  # the topic's sum is a row too
            method, _ = shipped()
            members = getattr(method, "fitted_", ())
            self.model_ = next((m for m in members if isinstance(m, Boosting)), None)
        return self

    def paths(self, panel: LogPanel, origins: Sequence[int], horizon: int) -> Floats:
        """Draw paths; NaN where it is not asked, or steps are not hours."""
        model: Boosting | None = getattr(self, "model_", None)
        if model is None or panel.steps_per_day != 24:
            return np.full((panel.logs.shape[0], len(origins), horizon), np.nan)
        return model.paths(panel, origins, horizon)

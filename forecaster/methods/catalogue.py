"""The methods that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from forecaster.errors import InputRefused
from forecaster.methods.base import Method
from forecaster.methods.blend import MedianBlend
from forecaster.methods.boosting import Boosting
from forecaster.methods.grid import Grid
from forecaster.methods.kernel_ridge import KernelRidge
from forecaster.methods.last_value import LastValue
from forecaster.methods.pretrained import Pretrained
from forecaster.methods.seasonal_naive import SeasonalNaive
from forecaster.methods.short_lead import ShortLead
from forecaster.methods.trained_blend import TrainedBlend
from forecaster.methods.two_leads import TwoLeads


def _median_blend() -> Method:
    return MedianBlend((SeasonalNaive("day"), SeasonalNaive("week"), Grid()))


def _blend() -> Method:
    members = (SeasonalNaive("day"), SeasonalNaive("week"), Grid(), Boosting(), KernelRidge(), Pretrained())
    return TrainedBlend(members)


def _own() -> Method:
    return TwoLeads(_blend(), ShortLead())


def _holt_winters() -> Method:
    from forecaster.methods.holt_winters import HoltWinters  # statsmodels is slow to import, and seldom needed

    return HoltWinters()


METHODS: dict[str, Callable[[], Method]] = {
    "last_value": LastValue,
    "yesterday": lambda: SeasonalNaive("day"),
    "last_week": lambda: SeasonalNaive("week"),
    "seasonal_naive": lambda: SeasonalNaive("day"),
    "grid": Grid,
    "holt_winters": _holt_winters,
    "median_blend": _median_blend,
    "boosting": Boosting,
    "kernel_ridge": KernelRidge,
    "blend": _blend,
    "short_lead": ShortLead,
    "own": _own,
}
"""Name → factory of an unfitted method."""


def make_method(name: str) -> Method:
    """Return a fresh, unfitted method.

    Raises
    ------
    InputRefused
        If there is no such method; the message names the nearest.

    Examples
    --------
    >>> make_method("grid").name
    'grid'
    """
    if name not in METHODS:
        near = get_close_matches(name, METHODS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputRefused(f"no forecasting method {name!r}; {hint}there are {', '.join(sorted(METHODS))}")
    return METHODS[name]()

"""The clairvoyant limit without clairvoyance: what it costs to be ready for all that history has shown.

The limit of :func:`balancer.rivals.fixed.perfect` knows every minute to come. Whoever must ask for members a lead time
ahead knows what had been seen by then, and that from there demand may go as far as it ever went. The least demand that
nothing in the history would have exceeded is an *envelope*: what is known, times the largest factor by which history
went beyond it from a like level. Of several things that are known (the rate, a forecast), the lowest envelope is one as
well. The cheapest path over it, at no more than so many changes a day, is the limit with that information: who pays
less would have been late in an event that history holds; what exceeds the envelope no history showed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balancer.demand import CELLS
from balancer.learning import Past
from balancer.rivals.fixed import least_hours, members_for, needed_records
from balancer.simulator.batch import Floats, Integers
from balancer.simulator.forecasts import ForecastBatch
from balancer.simulator.world import World

_OCTAVES = 16
_LOWEST = 1 / 8
"""Of one member's capacity: below it, rates are too small for their ratios to mean anything."""


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """By what factor history went beyond what was known, by the level of what was known.

    Parameters
    ----------
    unit
        Records/min of one member.
    factors
        Shape (octaves,): the factor from each octave of the level, of its neighbours as well.
    """

    unit: float
    factors: Floats

    @classmethod
    def of(cls, known: Floats, came: Floats, unit: float, beyond: float = 0.0) -> Envelope:
        """Learn from pairs of what was known and what came of it.

        Parameters
        ----------
        known, came
            Shape (pairs,), records/min.
        unit
            Records/min of one member.
        beyond
            Share of an octave's records that may lie beyond its envelope.

        Examples
        --------
        An octave in which nothing fell takes the largest factor of all.

        >>> pairs = np.array([10.0, 10.0, 80.0]), np.array([15.0, 40.0, 88.0])
        >>> Envelope.of(*pairs, unit=10.0).over(np.array([10.0, 80.0, 5.0, 800.0])).round(3).tolist()
        [40.0, 88.0, 20.0, 3200.0]
        >>> Envelope.of(*pairs, unit=10.0, beyond=0.1).over(np.array([10.0])).round(3).tolist()
        [34.5]
        """
        known = np.maximum(known, _LOWEST * unit)
        octave, ratio = _octave(known, unit), came / known
        factors = np.full(_OCTAVES, ratio.max(initial=1.0))
        for place in range(_OCTAVES):
            near = np.abs(octave - place) <= 1
            if near.any():
                factors[place] = _least_factor(known[near], came[near], ratio[near], beyond)
        return cls(unit, factors)

    def over(self, known: Floats) -> Floats:
        """Return the demand that history says may come, from what is known."""
        known = np.maximum(known, _LOWEST * self.unit)
        demand: Floats = known * self.factors[_octave(known, self.unit)]
        return demand


def _least_factor(known: Floats, came: Floats, ratio: Floats, beyond: float) -> float:
    """Return the least factor over which no more than a share of all records came: exact, along sorted ratios."""
    if beyond <= 0:
        return float(ratio.max())
    order = np.argsort(-ratio)
    ratio, known, came = ratio[order], np.cumsum(known[order]), np.cumsum(came[order])
    over = came - ratio * known  # beyond a factor as large as this ratio
    last = max(int(np.searchsorted(over, beyond * came[-1], side="right")) - 1, 0)
    # between two ratios what lies beyond is a straight line
    return float(max((came[last] - beyond * came[-1]) / known[last], 0.0))


def _octave(known: Floats, unit: float) -> Integers:
    octave: Integers = np.clip(np.log2(known / (_LOWEST * unit)), 0, _OCTAVES - 1).astype(np.int64)
    return octave


def rates_known(minutes: Floats, start_s: float) -> Floats:
    """Return, for each minute, the mean of the last two minutes known when its members had to be asked for.

    Minutes without such a past take the first value.

    Examples
    --------
    >>> rates_known(np.array([2.0, 4.0, 6.0, 8.0, 10.0]), 120.0).tolist()
    [2.0, 2.0, 2.0, 2.0, 3.0]
    """
    lag = math.ceil(start_s / 60) + 1  # the minute in which they are asked for is not complete
    mean = (minutes + np.concatenate([minutes[:1], minutes[:-1]])) / 2
    known: Floats = np.concatenate([np.full(min(lag, minutes.size), minutes[0]), mean[:-lag]])
    return known


def informed_path(world: World, past: Past | None, batch: ForecastBatch | None, late_target: float = 1e-4) -> Integers:
    """Return the limit with the information that a policy has: members that work, one entry a minute of the run.

    Parameters
    ----------
    world
        Arrivals and members; rates are held against the whole history.
    past
        Weeks of the history with the forecasts that could have been made in them; None goes by the rate alone.
    batch
        Forecasts at every minute of the run.
    late_target
        Share of the history's records that may lie beyond; half of it beyond each envelope, where there are two.
    """
    unit, first = 60 * world.capacity, world.first_minute
    known, came = rates_known(world.minutes, world.start_s), needed_records(world.minutes)
    has_forecasts = past is not None and past.cells is not None and batch is not None
    beyond = late_target / 2 if has_forecasts else late_target
    by_rate = Envelope.of(known[:first], came[:first], unit, beyond)
    demand = by_rate.over(known[first : first + world.run_minutes])
    if past is not None and past.cells is not None and batch is not None:
        lead = math.ceil(world.start_s / 60)
        cell = int(np.searchsorted(CELLS.starts_s, 60.0 * lead, side="right")) - 1
        said = past.cells[:, : past.minutes.shape[1] - lead, cell, 0].astype(np.float64) * 60
        happened = np.array([needed_records(row)[lead:] for row in past.minutes])
        by_forecast = Envelope.of(said.ravel(), happened.ravel(), unit, beyond)
        now = batch.cells()[: world.run_minutes - lead, cell, 0].astype(np.float64) * 60
        demand[lead:] = np.minimum(demand[lead:], by_forecast.over(now))
    return least_hours(members_for(demand, world.capacity, world.limit_replicas))

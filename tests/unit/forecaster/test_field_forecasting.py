"""Reports from the field about forecasting that no other file holds, by their ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forecaster.forecast import Forecast
from forecaster.ingest.trace import read_trace
from forecaster.methods.catalogue import make_method
from forecaster.series import ArrivalSeries
from forecaster.timegrid import TimeGrid

DATA = Path(__file__).resolve().parents[3] / "data"


def test_d5_longer_steps_add_up_every_sample_between_them() -> None:
    """A burst of one minute is in the quarter of an hour whole, wherever in it it fell."""
    for at in range(15):
        counts = np.zeros((1, 60))
        counts[0, 15 + at] = 900.0
        fine = ArrivalSeries("t", TimeGrid(60), 0, (0,), counts, np.full(counts.shape, True))
        assert fine.at_step(900).counts.tolist() == [[0.0, 900.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("file", "zone"), [("dc_bikeshare_1h", "America/New_York"), ("nyc_taxi_30min", "America/New_York")]
)
def test_d18_at_equal_protection_less_is_paid_than_by_copying_last_week(file: str, zone: str) -> None:
    """Both forecasts are raised until 5 % of the steps are short; what is then paid is compared."""
    series = read_trace(DATA / f"{file}.csv.gz", None, timezone=zone)
    day = series.grid.steps_per_day
    paid = {}
    for name in ("median_blend", "last_week"):
        said, came = [], []
        for k in range(21, 0, -1):
            origin = series.end_index - k * day
            answer = make_method(name).predict(series.between(series.first_index, origin), day, (0.5,))
            assert isinstance(answer, Forecast)
            known = series.between(origin, origin + day)
            said.append(answer.rates[0, :, 0][known.known[0]])
            came.append(known.rates()[0][known.known[0]])
        forecast, truth = np.concatenate(said), np.concatenate(came)
        margin = np.quantile(truth / np.maximum(forecast, 1e-9), 0.95)
        paid[name] = float((margin * forecast).mean() / truth.mean())
    assert paid["median_blend"] < paid["last_week"], paid

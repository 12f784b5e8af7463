"""The classic assignor's weights, asked of a real server over the application."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from balancer.consumer.assignor import weights_of
from forecaster.forecast import NoForecast
from forecaster.topics import TopicPartition
from tests.integration.page.scene import served
from tests.unit.headway.conftest import NOW, a_forecast


def test_weights_are_the_median_forecast_of_each_partition_and_stay_while_nobody_answers(application):
    forecast = a_forecast()
    median = forecast.levels.index(0.5)
    view = application.board.get("orders")
    application.board.update("orders", "forecast", lambda v: v.forecasts.update(orders=forecast), NOW)
    expected = {
        TopicPartition("orders", p): pytest.approx(float(np.mean(forecast.rates[i, :, median])))
        for i, p in enumerate(forecast.partitions)
    }
    with served(application) as url:
        weights = weights_of(url, "orders", timeout_s=60)
        assert weights() == expected
        unknown = weights_of(url, "nobody", timeout_s=60)
        assert unknown() == {}
        doubled = replace(forecast, rates=forecast.rates * 2, total=forecast.total * 2)
        application.board.update("orders", "forecast", lambda v: v.forecasts.update(orders=doubled), NOW)
        twice = weights()
        assert {tp: w / 2 for tp, w in twice.items()} == expected
    assert weights() == twice, "nobody answers"
    with served(application) as url:
        why = NoForecast("orders", NOW, "no history yet")
        application.board.update("orders", "forecast", lambda v: v.forecasts.update(orders=why), NOW)
        assert view.topics == ("orders",)
        assert weights_of(url, "orders", timeout_s=60)() == {}, "partitions count alike"

"""The backtest's page is one file that needs no network, with every plot in it."""

from __future__ import annotations

import re
from pathlib import Path

from forecaster.backtest import BacktestPlan, backtest
from headway.reports.backtest_page import write_page
from tests.unit.forecaster.naive_oracle import Yesterday
from tests.unit.forecaster.test_backtest import some_series


def test_the_page_is_self_contained_and_complete(tmp_path: Path) -> None:
    series = some_series(rows=3)
    methods = {"first": Yesterday(), "second": Yesterday(factor=1.2)}
    report = backtest(series, methods, BacktestPlan(24, 3, 24))
    write_page(tmp_path / "report.html", series, report)
    text = (tmp_path / "report.html").read_text()
    assert not re.search(r'<(script|link)[^>]+(src|href)="(?!data:)', text)
    for title in ("Worst series", "Median series", "Best series", "Error by lead", "hour of the week", "Reliability"):
        assert title in text
    assert "Backtest of orders" in text


def test_a_single_series_that_was_never_forecast_has_a_page_too(tmp_path: Path) -> None:
    series = some_series(rows=1)
    report = backtest(series, {"picky": Yesterday(need=99)}, BacktestPlan(24, 2, 24))
    write_page(tmp_path / "report.html", series, report)
    assert "Only series" in (tmp_path / "report.html").read_text()

"""Series out to a file and in again."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import InputRefused, SampleRejected
from forecaster.exchange import COLUMNS, export_series, import_series
from forecaster.stores.base import Cells, SeriesKey
from forecaster.stores.memory import MemorySeriesStore
from forecaster.stores.retention import Retention

I0 = 29_000_000
ARRIVALS = SeriesKey("orders", "arrivals")
LAG = SeriesKey("orders", "lag", "billing, EU", 60)
FINE = SeriesKey("orders", "end_offset", None, 10)
GOOD = "2026-01-05T09:00:00Z,arrivals,,60,0,5"


@pytest.fixture
def store() -> MemorySeriesStore:
    store = MemorySeriesStore()
    rng = np.random.default_rng(1)
    for key, first, steps in ((ARRIVALS, I0, 3000), (LAG, I0 + 50, 400), (FINE, I0 * 6, 200)):
        known = rng.random((3, steps)) > 0.2
        store.backfill(key, Cells(first, np.where(known, rng.integers(0, 2**40, (3, steps)), 0), known))
    return store


def written(tmp_path: Path, *lines: str, header: str = ",".join(COLUMNS)) -> Path:
    file = tmp_path / "in.csv"
    file.write_text("\n".join([header, *lines]) + "\n")
    return file


@pytest.mark.parametrize("ending", ["parquet", "csv.gz", "csv"])
def test_d7_what_goes_out_comes_in_equal_elsewhere(store: MemorySeriesStore, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"orders.{ending}"
    out = export_series(store, "orders", file)
    other = MemorySeriesStore()
    for _ in range(2):
        back = import_series(other, "renamed", file)
        assert (back.rows, back.series) == (out.rows, 3)
    for key in (ARRIVALS, LAG, FINE):
        first = I0 * 60 // key.step_s - 100
        a = store.read(key, first, first + 4000)
        b = other.read(SeriesKey("renamed", key.metric, key.group, key.step_s), first, first + 4000)
        assert np.array_equal(a.values, b.values)
        assert np.array_equal(a.known, b.known)
    assert [p.name for p in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("ending", ["parquet", "csv.gz"])
def test_hours_older_than_the_steps_go_out_and_come_in_too(tmp_path: Path, ending: str) -> None:
    old = MemorySeriesStore(Retention(steps=timedelta(days=3)))
    rng = np.random.default_rng(2)
    day0, days = 20_000, 9
    values = rng.integers(0, 2**33, (2, days * 1440))
    known = rng.random((2, days * 1440)) > 0.001
    old.backfill(ARRIVALS, Cells(day0 * 1440, np.where(known, values, 0), known))
    old.prune("orders", datetime(2026, 1, 5, tzinfo=UTC))
    file = tmp_path / f"orders.{ending}"
    out = export_series(old, "orders", file)
    new = MemorySeriesStore()
    for _ in range(2):
        assert import_series(new, "orders", file).rows == out.rows
    assert new.read(ARRIVALS, day0 * 1440, (day0 + 5) * 1440).known.sum() == 0
    for a, b in zip(*(s.read_hourly(ARRIVALS, day0 * 24, (day0 + days) * 24) for s in (old, new)), strict=True):
        assert a.known[:, : 5 * 24].any()
        assert np.array_equal(a.values, b.values)
        assert np.array_equal(a.known, b.known)


def test_a_csv_says_what_it_holds(tmp_path: Path) -> None:
    store = MemorySeriesStore()
    index = int(pd.Timestamp("2026-01-05T09:00Z").timestamp()) // 60
    store.backfill(ARRIVALS, Cells(index, np.array([[5, 0]]), np.array([[True, True]])))
    export_series(store, "orders", tmp_path / "o.csv.gz")
    with gzip.open(tmp_path / "o.csv.gz", "rt") as f:
        assert f.read().splitlines() == [",".join(COLUMNS), GOOD, "2026-01-05T09:01:00Z,arrivals,,60,0,0"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2026-01-05T09:00:00,arrivals,,60,0,5", r"in.csv:3: timestamp .* zone"),
        ("yesterday,arrivals,,60,0,5", r"in.csv:3: timestamp 'yesterday'"),
        ("1926-01-05T09:00:00Z,arrivals,,60,0,5", r"in.csv:3: timestamp .* before 1970"),
        ("2026-01-05T09:00:30Z,arrivals,,60,0,5", r"in.csv:3: timestamp .* start of a step"),
        ("2026-01-05T09:01:00Z,arrivals:hourly_sum,,60,0,5", r"in.csv:3: timestamp .* start of an hour"),
        ("2026-01-05T09:00:00Z,arrivals:daily,,60,0,5", r"in.csv:3: metric 'arrivals:daily' .*:hourly_sum"),
        ("2026-01-05T09:01:00Z,arrivals,,7,0,5", r"in.csv:3: step_s '7'"),
        ("2026-01-05T09:01:00Z,arrivals,,60,-1,5", r"in.csv:3: partition '-1'"),
        ("2026-01-05T09:01:00Z,arrivals,,60,9999999,5", r"in.csv:3: partition"),
        ("2026-01-05T09:01:00Z,arrivals,,60,0,-5", r"in.csv:3: value '-5'"),
        ("2026-01-05T09:01:00Z,arrivals,,60,0,5.5", r"in.csv:3: value '5.5'"),
        ("2026-01-05T09:01:00Z,arrivals,,60,0,nan", r"in.csv:3: value 'nan'"),
        ("2026-01-05T09:01:00Z,arrivals,,60,0,", r"in.csv:3: value ''"),
        ("2026-01-05T09:01:00Z,,,60,0,5", r"in.csv:3: metric"),
        (GOOD, r"in.csv:3: timestamp .* repeats"),
        ("2026-01-05T09:01:00Z,arrivals,,60,0,5,9", r"damaged"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(tmp_path: Path, line: str, says: str) -> None:
    store = MemorySeriesStore()
    with pytest.raises(InputRefused, match=says):
        import_series(store, "orders", written(tmp_path, GOOD, line, GOOD.replace("09:00", "09:05")))
    assert store.topics() == ()


def test_files_that_are_none(store: MemorySeriesStore, tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="no such file"):
        import_series(store, "orders", tmp_path / "none.csv")
    with pytest.raises(InputRefused, match="must end in"):
        export_series(store, "orders", tmp_path / "o.xlsx")
    with pytest.raises(InputRefused, match="expected timestamp,metric"):
        import_series(store, "orders", written(tmp_path, "1", header="time,value"))
    (tmp_path / "o.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputRefused, match="not a Parquet file"):
        import_series(store, "orders", tmp_path / "o.parquet")
    pd.DataFrame({"timestamp": [1]}).to_parquet(tmp_path / "p.parquet")
    with pytest.raises(InputRefused, match="column 'metric' is missing"):
        import_series(store, "orders", tmp_path / "p.parquet")
    with pytest.raises(InputRefused, match="nothing is recorded of topic 'order'; did you mean 'orders'"):
        export_series(store, "order", tmp_path / "o.csv")
    assert not (tmp_path / "o.csv").exists()


def test_a_file_that_was_cut_off_is_refused_whole(store: MemorySeriesStore, tmp_path: Path) -> None:
    export_series(store, "orders", tmp_path / "o.csv.gz")
    whole = (tmp_path / "o.csv.gz").read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    fresh = MemorySeriesStore()
    with pytest.raises(InputRefused, match="cut off"):
        import_series(fresh, "orders", tmp_path / "cut.csv.gz")
    assert fresh.topics() == ()


def test_history_of_the_future_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SampleRejected, match="future"):
        import_series(MemorySeriesStore(), "orders", written(tmp_path, "2999-01-05T09:00:00Z,arrivals,,60,0,5"))
    store, now = MemorySeriesStore(), datetime(2026, 1, 5, 9, tzinfo=UTC)
    with pytest.raises(InputRefused, match=r"in.csv:3: timestamp .* future"):
        import_series(store, "orders", written(tmp_path, GOOD, GOOD.replace("09:00", "09:03")), now)
    assert store.topics() == ()


def test_rows_in_any_order_and_over_years(tmp_path: Path) -> None:
    store = MemorySeriesStore()
    lines = ["2025-12-31T23:59:00Z,arrivals,,60,1,7", "1998-05-01T00:00:00+00:00,arrivals,,60,0,3"]
    assert import_series(store, "orders", written(tmp_path, *lines)).rows == 2
    old = int(pd.Timestamp("1998-05-01T00:00Z").timestamp()) // 60
    assert store.read(ARRIVALS, old, old + 1).values.tolist() == [[3]]


def test_a_full_disk_is_said_with_the_file_and_leaves_none(
    store: MemorySeriesStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(InputRefused, match=r"o\.csv: cannot be written \(No space left on device\); make room"):
        export_series(store, "orders", tmp_path / "o.csv")
    assert list(tmp_path.iterdir()) == []

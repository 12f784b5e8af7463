"""Trace files: what is read, and every way in which a file is refused with its place."""

from __future__ import annotations

import csv
import gzip
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import InputRefused
from forecaster.ingest.trace import read_each, read_trace, spread, topic_of

DATA = Path(__file__).parents[4] / "data"
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def write(folder: Path, *rows: str, name: str = "orders.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(["timestamp,series,value", *rows]) + "\n", encoding="utf-8")
    return path


def row(minute: float, value: str = "1", series: str = "s") -> str:
    return f"{(START + timedelta(minutes=minute)).isoformat()},{series},{value}"


def test_a_missing_row_is_a_gap_and_zero_is_a_value(tmp_path: Path) -> None:
    series = read_trace(write(tmp_path, row(0, "5"), row(1, "0"), row(3, "7")))
    assert series.grid.step_s == 60
    assert series.start == START
    assert series.counts.tolist() == [[5, 0, 0, 7]]
    assert series.known.tolist() == [[True, True, False, True]]
    assert series.topic == "orders"


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, row(0), row(1))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_trace(path).steps == 2


def test_offsets_are_converted_and_byte_order_marks_and_crlf_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        "\ufefftimestamp,series,value\r\n2026-01-05T10:00:00+01:00,s,1\r\n2026-01-05T09:01:00Z,s,2\r\n\r\n".encode()
    )
    series = read_trace(path)
    assert series.start == START
    assert series.counts.tolist() == [[1, 2]]


def test_several_series_are_partitions_in_order_of_appearance_or_by_number(tmp_path: Path) -> None:
    by_time = read_trace(write(tmp_path, row(0, "1", "b"), row(0, "2", "a"), row(1, "3", "b"), row(1, "4", "a")))
    assert by_time.names == ("b", "a")
    assert by_time.counts.tolist() == [[1, 3], [2, 4]]
    numbered = read_trace(write(tmp_path, *(row(m, str(p), str(p)) for p in (10, *range(10)) for m in (0, 1))))
    assert numbered.names == tuple(map(str, range(11)))
    assert numbered.counts[:, 0].tolist() == list(range(11))


def test_one_series_is_picked_and_an_unknown_one_names_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, row(0, "1", "north"), row(1, "2", "north"), row(0, "3", "south"), row(1, "4", "south"))
    assert read_trace(path, series="south").counts.tolist() == [[3, 4]]
    with pytest.raises(InputRefused, match=r"no series 'soth'; there are 2, such as south"):
        read_trace(path, series="soth")


def test_series_read_each_by_itself_keep_their_own_range(tmp_path: Path) -> None:
    path = write(tmp_path, row(0, "1", "a"), row(1, "2", "a"), row(600_000, "3", "b"), row(600_002, "4", "b"))
    a, b = read_each(path)
    assert (a.names, a.counts.tolist()) == (("a",), [[1, 2]])
    assert (b.names, b.counts.tolist(), b.known.tolist()) == (("b",), [[3, 0, 4]], [[True, False, True]])


def test_decimals_are_refused_only_for_whole_records_and_rounded_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, row(0, "1"), row(1, "2.5"), row(2, "3.0"))
    assert read_trace(path).counts.tolist() == [[1, 2.5, 3]]
    with pytest.raises(InputRefused, match=r"orders\.csv:3: 2\.5 is not a whole number.*--round"):
        read_trace(path, integers=True)
    assert read_trace(path, integers=True, round_=True).counts.tolist() == [[1, 3, 3]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(0), row(1), row(1)], r":4: .* already given in line 3"),
        ([row(0), row(1), row(2), row(1)], r":5: .* goes back behind line 4"),
        ([row(0), row(1, "abc")], r":3: 'abc' is no number"),
        ([row(0), row(1, "")], r":3: '' is no number"),
        ([row(0), row(1, "1_000")], r":3: '1_000' is no number"),
        ([row(0), row(1, "٣")], r":3: '٣' is no number"),
        ([row(0), row(1, "-1")], r":3: -1 is negative; .* --missing=-1$"),
        ([row(0), row(1, "nan")], r":3: nan is not finite; .* --missing=nan$"),
        ([row(0), row(1, "inf")], r":3: inf is not finite"),
        ([row(0), "2026-01-05T09:01:00,s,1"], r":3: .* has no zone"),
        ([row(0), "yesterday,s,1"], r":3: 'yesterday' is no ISO 8601 time"),
        ([row(0), "1926-01-05T09:01:00Z,s,1"], r":3: .* before 1970"),
        ([row(0), "9999-12-31T23:59:00Z,s,1"], r":3: .* behind the year 9000; correct the year"),
        ([row(0), row(1, "10000000000000000000")], r":3: 10000000000000000000 is more than 9007199254740992.* unit"),
        ([row(0), row(1, "1e308")], r":3: 1e308 is more than"),
        ([row(0), "2026-01-05T09:01:00.5Z,s,1"], r":3: .* not a whole second"),
        ([row(0), row(1) + ",4"], r":3: .* is not a row of"),
        ([row(0), "2026-01-05T09:01:00Z,1"], r":3: .* is not a row of"),
        ([row(0), "", row(1)], r":3: a blank line"),
        ([row(0), '2026-01-05T09:01:00Z,"s,1'], r":3: not CSV"),
        ([row(0, series=" "), row(1, series=" ")], r":2: the series has no name"),
        ([row(0)], r"no series has two rows"),
        ([], r"no rows below the header"),
        ([row(0), row(1), row(2), row(3.5)], r":5: 90 s after the row before it, where most rows are 60 s"),
        ([row(0), row(7), row(14)], r"step_s=420 must be .* divides a day"),
        ([row(0.5), row(1.5)], r":2: .* is 30 s past the start of a 60 s step"),
        ([row(0), row(1), row(700_000_000)], r"\(line 4\) are \d+ steps .* check these timestamps"),
        (
            [*map(row, range(0, 40, 2)), *map(row, range(40, 80))],
            r":3: from here on rows are 120 s apart",
        ),
    ],
)
def test_a_file_that_is_not_unambiguous_is_refused_with_its_line(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputRefused, match=message):
        read_trace(write(tmp_path, *rows))


@pytest.mark.parametrize(("text", "value"), [("-1", -1.0), ("-1.0", -1.0), ("0", 0.0), ("nan", float("nan"))])
def test_a_row_with_the_value_that_stands_for_missing_is_a_gap(tmp_path: Path, text: str, value: float) -> None:
    path = write(tmp_path, row(0, text), row(1, "3"), row(2, text), row(3, "7"), row(4, text))
    for series in (read_trace(path, integers=True, missing=value), read_each(path, round_=True, missing=value)[0]):
        assert series.counts.tolist() == [[0, 3, 0, 7, 0]]
        assert series.known.tolist() == [[False, True, False, True, False]]
        assert series.start == START and series.grid.step_s == 60


def test_exactly_one_value_stands_for_missing(tmp_path: Path) -> None:
    path = write(tmp_path, row(0, "-1"), row(1, "3"), row(2, "-2"))
    with pytest.raises(InputRefused, match=r":4: -2 is negative; .* --missing=-2$"):
        read_trace(path, missing=-1)
    with pytest.raises(InputRefused, match=r":3: .* already given in line 2"):
        read_trace(write(tmp_path, row(0, "-1"), row(0, "3"), row(1, "4")), missing=-1)
    with pytest.raises(InputRefused, match="every row holds -1"):
        read_trace(write(tmp_path, row(0, "-1"), row(1, "-1")), missing=-1)


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with pytest.raises(InputRefused, match="No such file"):
        read_trace(path)
    with pytest.raises(InputRefused, match="directory"):
        read_trace(tmp_path)
    path.write_text("time,value\n1,2\n")
    with pytest.raises(InputRefused, match=r"x\.csv:1: the header is 'time,value'"):
        read_trace(path)
    path.write_text("")
    with pytest.raises(InputRefused, match="the file is empty"):
        read_trace(path)
    path.write_bytes("timestamp,series,value\n2026-01-05T09:00:00Z,ü,1\n".encode("latin-1"))
    with pytest.raises(InputRefused, match="UTF-8"):
        read_trace(path)
    whole = gzip.compress(b"timestamp,series,value\n" + b"2026-01-05T09:00:00Z,s,1\n" * 2000)
    for broken in (whole[:-10], whole[:60] + b"\xff" * 20 + whole[80:]):
        path.write_bytes(broken)
        with pytest.raises(InputRefused):
            read_trace(path)
    with pytest.raises(InputRefused, match="unknown time zone"):
        read_trace(write(tmp_path, row(0), row(1)), timezone="Mars/Base")


def test_gaps_that_happen_to_be_alike_are_gaps(tmp_path: Path) -> None:
    nights = [row(day * 1440 + hour * 60) for day in range(20) for hour in range(8, 20)]
    series = read_trace(write(tmp_path, *nights))
    assert series.grid.step_s == 3600
    assert series.known.sum() == len(nights)


@settings(max_examples=40, deadline=None)
@given(
    cells=st.dictionaries(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 60)), st.integers(0, 10**9), min_size=1, max_size=60
    ),
    step_s=st.sampled_from([1, 15, 60, 300, 3600]),
)
def test_what_was_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, cells: dict[tuple[str, int], int], step_s: int
) -> None:
    cells |= {("x", step): 1 for step in range(100, 220)}  # enough neighbours to make the step plain
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    with path.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["timestamp", "series", "value"])
        for (name, step), value in sorted(cells.items()):
            rows.writerow([(START + timedelta(seconds=step * step_s)).isoformat(), name, value])
    series = read_trace(path, integers=True)
    assert series.grid.step_s == step_s
    first = series.grid.index_of(START)
    assert series.names is not None
    got = {
        (series.names[p], series.first_index + s - first): int(series.counts[p, s])
        for p, s in zip(*np.nonzero(series.known), strict=True)
    }
    assert got == cells


def test_spreading_keeps_every_record_and_follows_the_skew() -> None:
    one = read_trace(DATA / "nyc_taxi_30min.csv.gz")
    many = spread(one, 8, "zipf:1.0", seed=3)
    assert (many.counts.sum(axis=0) == one.counts[0]).all()
    assert (many.known == one.known).all()
    share = many.counts.sum(axis=1) / many.counts.sum()
    zipf = np.arange(1, 9) ** -1.0
    assert share == pytest.approx(zipf / zipf.sum(), rel=0.01)
    assert (spread(one, 8, "zipf:1.0", seed=3).counts == many.counts).all()
    assert (spread(one, 8, "zipf:1.0", seed=4).counts != many.counts).any()
    assert spread(one, 4, "even").counts.sum(axis=1) == pytest.approx([one.counts.sum() / 4] * 4, rel=0.01)


def test_spreading_refuses_what_it_cannot_mean(tmp_path: Path) -> None:
    one = read_trace(write(tmp_path, row(0, "1.5"), row(1, "3")))
    assert spread(one, 2, "even").counts.tolist() == [[0.75, 1.5], [0.75, 1.5]]
    for skew in ("zipf", "zipf:", "zipf:-1", "zipf:nan", "pareto:1", "even:2"):
        with pytest.raises(InputRefused, match="is not zipf:S"):
            spread(one, 2, skew)
    with pytest.raises(InputRefused, match="partitions=0"):
        spread(one, 0)
    with pytest.raises(InputRefused, match="has 2 series"):
        spread(spread(one, 2), 2)


def test_the_samples_are_what_their_readme_says() -> None:
    text = (DATA / "README.md").read_text(encoding="utf-8")
    for path in sorted(DATA.glob("*.csv.gz")):
        line = next(line for line in text.splitlines() if line.startswith(f"| `{path.name}`"))
        cells = [cell.strip() for cell in line.split("|")]
        series = read_trace(path, integers=True)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == cells[8].strip("`")
        assert f"{series.start:%Y-%m-%d} … {series.end:%Y-%m-%d}" == cells[4]
        assert (f"{series.known.sum():,}", f"{(~series.known).sum():,}") == (cells[5], cells[6])
        assert series.grid.step_s == {"1 min": 60, "30 min": 1800, "1 h": 3600}[cells[3]]


def test_names_of_topics() -> None:
    assert topic_of("a/b/x.y.csv") == "x.y"

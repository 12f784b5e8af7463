"""What all stores share: which ticks are taken, how cells are joined and rolled up, what errors say."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from forecaster.errors import SampleRejected, StoreRefused, StoreUnavailable
from forecaster.stores.base import Cells, SeriesKey, Tick
from forecaster.stores.joining import days_between, join, write_onto
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import place_of, translate
from forecaster.stores.retention import Retention, refuse_future, refuse_late
from forecaster.stores.rollups import roll_up


def test_the_edges_of_the_window() -> None:
    refuse_future("t", 1120, 60, 1000.0)
    with pytest.raises(SampleRejected, match="NTP"):
        refuse_future("t", 1121, 60, 1000.0)
    refuse_late("t", 0, None, timedelta(seconds=1))
    refuse_late("t", 90, 100, timedelta(seconds=10))
    with pytest.raises(SampleRejected):
        refuse_late("t", 89, 100, timedelta(seconds=10))


@pytest.mark.parametrize("wrong", [{"steps": timedelta(0)}, {"hourly": timedelta(-1)}, {"late": timedelta(days=64)}])
def test_a_retention_that_cannot_be_meant(wrong: dict[str, timedelta]) -> None:
    with pytest.raises(ValueError, match=f"retention {next(iter(wrong))}="):
        Retention(**wrong)


def test_negative_counts_never_enter() -> None:
    values, known = np.array([-1, 3]), np.array([True, True])
    key = SeriesKey("t", "arrivals")
    with pytest.raises(ValueError, match="negative"):
        Tick("t", 60, 0, {key: (values, known)})
    with pytest.raises(ValueError, match="negative"):
        Cells(0, values[None, :], known[None, :])
    Tick("t", 60, 0, {key: (values, ~known)})
    with pytest.raises(ValueError, match="does not belong"):
        Tick("other", 60, 0, {key: (values, ~known)})
    with pytest.raises(ValueError, match="must be"):
        Tick("t", 60, 0, {key: (values, known[:1])})


parts = st.lists(
    st.tuples(
        st.integers(0, 20), st.lists(st.lists(st.none() | st.integers(0, 99), min_size=1, max_size=6), max_size=3)
    ),
    max_size=4,
)


@given(parts, st.integers(0, 20), st.integers(0, 15))
def test_joining_is_writing_into_a_dictionary(
    found: list[tuple[int, list[list[int | None]]]], first: int, n: int
) -> None:
    cells, expected = [], {}
    for start, rows in found:
        width = max((len(r) for r in rows), default=0)
        table = [[*r, *[None] * (width - len(r))] for r in rows]
        known = np.array([[v is not None for v in r] for r in table], dtype=bool).reshape(len(table), width)
        values = np.array([[v or 0 for v in r] for r in table], dtype=np.int64).reshape(len(table), width)
        cells.append(Cells(start, values, known))
        for p, row in enumerate(table):
            expected.update(
                {(p, start + i): v for i, v in enumerate(row) if v is not None and first <= start + i < first + n}
            )
    joined = join(cells, first, first + n)
    got = {(int(p), int(i) + first): int(joined.values[p, i]) for p, i in zip(*np.nonzero(joined.known), strict=True)}
    assert got == expected
    assert not joined.values[~joined.known].any()


def test_a_wider_part_does_not_fit() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        write_onto(Cells.missing(0, 1, 2), Cells.missing(0, 2, 2))


def test_days_that_steps_touch() -> None:
    assert list(days_between(-1, 1, 86_400)) == [-1, 0]
    assert list(days_between(5, 5, 60)) == []


def test_hours_of_steps_that_are_longer_than_one() -> None:
    assert roll_up(Cells.missing(0, 1, 4), 21_600) is None
    with pytest.raises(ValueError, match="whole hours"):
        roll_up(Cells.missing(3, 1, 60), 60)


names = st.text(min_size=1, max_size=12)


@given(names, names, names, st.none() | names, st.sampled_from([1, 60, 3600]))
def test_keys_and_fields_tell_all_names_apart(
    cluster: str, topic: str, metric: str, group: str | None, step: int
) -> None:
    keys, key = RedisKeys(cluster), SeriesKey(topic, metric, group, step)
    assert keys.series(topic, keys.field(key)) == key
    for name in (keys.day(key, 1), keys.row(key, 1), keys.timeseries(key, 1), keys.month(key, "2026-01")):
        assert name.count("{") == name.count("}") == 1
        assert keys.tag(topic) in name


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (exceptions.ConnectionError("Error 111 connecting."), StoreUnavailable, "is the server up"),
        (exceptions.TimeoutError("Timeout"), StoreUnavailable, "is the server up"),
        (exceptions.BusyLoadingError("LOADING"), StoreUnavailable, "LOADING"),
        (exceptions.ClusterDownError("CLUSTERDOWN"), StoreUnavailable, "CLUSTERDOWN"),
        (exceptions.AuthenticationError("WRONGPASS"), StoreRefused, "password"),
        (exceptions.NoPermissionError("NOPERM"), StoreRefused, "~hw"),
        (exceptions.ReadOnlyError("READONLY"), StoreRefused, "primary"),
        (exceptions.OutOfMemoryError("OOM"), StoreRefused, "maxmemory"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), StoreRefused, "make room on its disk"),
        (
            exceptions.ResponseError(
                "Command # 1 (SET hw:day:{main:orders} HM\x01\n\x0e'%...) of pipeline caused error: MISCONF Errors"
            ),
            StoreRefused,
            "h:1: MISCONF Errors; the server cannot write its files: make room",
        ),
        (exceptions.ResponseError("WRONGTYPE"), StoreRefused, "WRONGTYPE"),
    ],
)
def test_errors_name_the_place_and_the_remedy(error: exceptions.RedisError, kind: type[Exception], says: str) -> None:
    said = translate(error, "redis://h:1")
    assert isinstance(said, kind)
    assert says in str(said)
    assert str(said).startswith("redis://h:1: ")


def test_no_secret_in_a_place() -> None:
    assert "pw" not in place_of("rediss://me:pw@host:7000/0?x=1")

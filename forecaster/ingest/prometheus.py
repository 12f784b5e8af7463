"""Offsets that somebody's Prometheus already has: live, and months of them as history.

The server is asked for raw samples (``metric[5m]``), not for values on a raster: those repeat the last scrape under a
time at which nothing was measured. Exporters publish offsets as gauges; they are counters, and are read as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
import numpy as np

from forecaster.errors import SourceRefused, SourceUnavailable
from forecaster.ingest.base import OffsetReading, OffsetSample
from forecaster.offsets import CountingPolicy, Floats, Ints, counts_over
from forecaster.stores.base import Cells, SeriesKey, SeriesStore
from forecaster.stores.entry import recorded_topic
from forecaster.timegrid import DAY_S
from forecaster.topics import GroupId, TopicPartition


@dataclass(frozen=True, slots=True)
class Exporter:
    """How one exporter names things; an empty name is something that it does not publish."""

    name: str
    end: str
    start: str
    committed: str
    lag: str
    topic: str = "topic"
    partition: str = "partition"
    group: str = ""


EXPORTERS = (
    Exporter(  # danielqsj's, which Strimzi deploys as well
        "kafka_exporter",
        "kafka_topic_partition_current_offset",
        "kafka_topic_partition_oldest_offset",
        "kafka_consumergroup_current_offset",
        "kafka_consumergroup_lag",
        group="consumergroup",
    ),
    Exporter(
        "kminion",
        "kminion_kafka_topic_partition_high_water_mark",
        "kminion_kafka_topic_partition_low_water_mark",
        "",
        "kminion_kafka_consumer_group_topic_partition_lag",
        topic="topic_name",
        partition="partition_id",
        group="group_id",
    ),
    Exporter(
        "kafka-lag-exporter",
        "kafka_partition_latest_offset",
        "kafka_partition_earliest_offset",
        "kafka_consumergroup_group_offset",
        "kafka_consumergroup_group_lag",
        group="group",
    ),
    Exporter(  # the brokers' own JMX metrics by Strimzi's rules; every replica publishes
        "strimzi-jmx", "kafka_log_log_logendoffset", "kafka_log_log_logstartoffset", "", ""
    ),
)
"""Known exporters, in the order in which they are tried."""

Samples = tuple[Floats, Ints]
"""Times (seconds since 1970) and values of one partition, times rising."""


class PrometheusSource:
    """The :class:`forecaster.ingest.base.OffsetSource` over a Prometheus server's HTTP API.

    Parameters
    ----------
    url
        Such as ``http://prometheus:9090``; Thanos, Mimir and VictoriaMetrics answer the same API.
    exporter
        Name of one of :data:`EXPORTERS`; the first that knows the topics by default.
    fresh
        Samples older than this are not an answer (the scrape failed, or the partition is gone).
    selector
        Further label matchers, such as ``cluster="main"``.
    headers
        Authorization, tenant; never logged.
    clock
        Now, aware UTC.
    """

    def __init__(
        self,
        url: str,
        *,
        exporter: str | None = None,
        fresh: timedelta = timedelta(minutes=5),
        selector: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        """The address, without the name and password that it may have held: errors and progress say it."""
        self._selector, self._fresh, self._clock = selector, fresh, clock
        self._http = httpx.Client(
            base_url=self.url,
            auth=None if parts.username is None else (unquote(parts.username), unquote(parts.password or "")),
            headers=dict(headers or {}),
            timeout=timeout_s,
            transport=transport,
        )
        known = {e.name: e for e in EXPORTERS}
        if exporter is not None and exporter not in known:
            raise SourceRefused(f"no exporter {exporter!r}; there are {', '.join(known)}")
        self._exporter = known[exporter] if exporter is not None else None

    def read(self, topics: Sequence[str], groups: Sequence[GroupId]) -> OffsetReading:
        """Return the newest sample of each partition (:meth:`OffsetSource.read`)."""
        now = self._clock()
        exporter = self.exporter_of(topics, now)
        commits = self._commits(exporter, topics, groups, now)
        ends = self._raw(exporter.end, exporter, topics, now, self._fresh)
        starts = self._raw(exporter.start, exporter, topics, now, self._fresh)
        samples: dict[TopicPartition, OffsetSample] = {}
        for tp, (times, values) in ends.items():
            first = starts.get(tp)
            end = int(values[-1])
            committed: dict[GroupId, int | None] = {}
            for group in groups:
                found, is_lag = commits.get((group, tp), (None, False))
                committed[group] = None if found is None or found < 0 else (end - found if is_lag else found)
            samples[tp] = OffsetSample(
                at=datetime.fromtimestamp(float(times[-1]), UTC),
                log_start_offset=None if first is None else int(first[1][-1]),
                log_end_offset=end,
                committed=committed,
            )
        counts: dict[str, int] = {}
        for tp in samples:
            counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
        silent = [topic for topic in topics if topic not in counts]
        why = f"{self.url} has no fresh {exporter.end} of it; check that the exporter runs and is scraped"
        return OffsetReading(samples, {TopicPartition(topic, 0): why for topic in silent}, counts)

    def exporter_of(self, topics: Sequence[str], now: datetime) -> Exporter:
        """Return the exporter whose metrics hold the topics.

        Raises
        ------
        SourceRefused
            If none does.
        """
        if self._exporter is None:
            for exporter in EXPORTERS:
                window = max(self._fresh, timedelta(hours=1))
                if self._raw(exporter.end, exporter, topics, now, window):
                    self._exporter = exporter
                    break
            else:
                tried = ", ".join(e.end for e in EXPORTERS)
                raise SourceRefused(
                    f"{self.url} knows no offsets of {', '.join(topics)}; tried {tried}; check topics and selector"
                )
        return self._exporter

    def close(self) -> None:
        """Give up connections."""
        self._http.close()

    def history(self, topic: str, start: datetime, end: datetime) -> Mapping[int, Samples]:
        """Return the raw log end offsets of a topic in ``[start, end)``, by partition; fetched day by day."""
        exporter = self.exporter_of([topic], end)
        parts: dict[int, list[Samples]] = {}
        at = start
        while at < end:
            until = min(at + timedelta(days=1), end)
            found = self._raw(exporter.end, exporter, [topic], until, until - at)
            for tp, samples in found.items():
                parts.setdefault(tp.partition, []).append(samples)
            at = until
        joined = {}
        for partition, pieces in parts.items():
            times, values = (np.concatenate(column) for column in zip(*pieces, strict=True))
            keep = np.concatenate([[True], np.diff(times) > 0])
            joined[partition] = (times[keep], values[keep])
        return joined

    def _commits(
        self, exporter: Exporter, topics: Sequence[str], groups: Sequence[GroupId], now: datetime
    ) -> dict[tuple[GroupId, TopicPartition], tuple[int, bool]]:
        """Return what groups committed: offsets, or (marked) the lag where an exporter publishes nothing else."""
        metric = exporter.committed or exporter.lag
        found: dict[tuple[GroupId, TopicPartition], tuple[int, bool]] = {}
        if not metric:
            return found
        for group in groups:
            only = f'{exporter.group}="{_quoted(group)}"'
            for tp, (_, values) in self._raw(metric, exporter, topics, now, self._fresh, only).items():
                found[group, tp] = (int(values[-1]), not exporter.committed)
        return found

    def _raw(
        self,
        metric: str,
        exporter: Exporter,
        topics: Sequence[str],
        end: datetime,
        window: timedelta,
        more: str = "",
    ) -> dict[TopicPartition, Samples]:
        if not metric:
            return {}
        names = "|".join(_regex(topic) for topic in topics)
        matchers = ",".join(m for m in (f'{exporter.topic}=~"{names}"', more, self._selector) if m)
        query = f"{metric}{{{matchers}}}[{max(1, round(window.total_seconds()))}s]"
        found: dict[TopicPartition, list[Samples]] = {}
        for series in self._query(query, end):
            labels = series["metric"]
            try:
                tp = TopicPartition(labels[exporter.topic], int(labels[exporter.partition]))
            except (KeyError, ValueError):
                continue  # a sum over partitions under the same name
            points = [(float(t), float(v)) for t, v in series["values"]]
            points = [(t, v) for t, v in points if math.isfinite(v) and v >= 0]
            if points:
                times, values = zip(*points, strict=True)
                found.setdefault(tp, []).append((np.array(times), np.array(values, dtype=np.float64).astype(np.int64)))
        return {tp: one_series(several) for tp, several in found.items()}

    def _query(self, query: str, at: datetime) -> list[Any]:
        try:
            answer = self._http.post("/api/v1/query", data={"query": query, "time": f"{at.timestamp():.3f}"})
        except httpx.HTTPError as exc:
            harmless = isinstance(exc, httpx.ConnectError | httpx.UnsupportedProtocol)  # others may quote what was sent
            why = str(exc).rstrip(".") if harmless else type(exc).__name__
            raise SourceUnavailable(f"Prometheus at {self.url} does not answer ({why}); check its address") from None
        if answer.status_code in (401, 403):
            raise SourceRefused(f"Prometheus at {self.url} refuses us (HTTP {answer.status_code}); check its token")
        try:
            document = answer.json()
            if answer.status_code == 400 or document.get("status") == "error":
                told = str(document.get("error", answer.text))[:200]
                if answer.status_code == 503 or document.get("errorType") in ("timeout", "unavailable"):
                    raise SourceUnavailable(f"Prometheus at {self.url}: {told}")
                raise SourceRefused(f"Prometheus at {self.url} does not take the query: {told}")
            answer.raise_for_status()
            result: list[Any] = document["data"]["result"]
        except (ValueError, KeyError, AttributeError, httpx.HTTPStatusError):
            raise SourceUnavailable(
                f"Prometheus at {self.url} answers HTTP {answer.status_code} without a result; is this its API?"
            ) from None
        return result


def one_series(several: Sequence[Samples], apart_s: float = 90.0) -> Samples:
    """Return one history out of what several publishers said of the same partition.

    Exporters run twice for safety, restart under a new name, and every replica of a broker's log is published. Two
    readings of one counter taken by different hands must not be interleaved: each lags by a time of its own. The
    longest series is taken, and others fill only where it is silent for more than ``apart_s`` seconds around.
    """
    ordered = sorted(several, key=lambda s: (-len(s[0]), -int(s[1][-1])))
    times, values = ordered[0]
    for more_times, more_values in ordered[1:]:
        after = np.searchsorted(times, more_times)
        left = np.abs(more_times - times[np.maximum(after - 1, 0)])
        right = np.abs(more_times - times[np.minimum(after, len(times) - 1)])
        alone = np.minimum(left, right) > apart_s
        order = np.argsort(np.concatenate([times, more_times[alone]]), kind="stable")
        values = np.concatenate([values, more_values[alone]])[order]
        times = np.concatenate([times, more_times[alone]])[order]
    return times, values


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill wrote of one topic."""

    steps: int
    partitions: int
    known: float
    """Share of cells that are known."""


def backfill(
    store: SeriesStore,
    source: PrometheusSource,
    topic: str,
    start: datetime,
    end: datetime,
    step_s: int = 60,
    max_gap_s: float | None = None,
) -> Backfilled:
    """Write a topic's history from Prometheus into the store, day by day, so that it starts with months of it.

    Parameters
    ----------
    store, source, topic
        From where, to where, what.
    start, end
        Range; widened inwards to whole steps.
    step_s
        Step of the topic in the store.
    max_gap_s
        Between two scrapes further apart nothing is interpolated; one and a half steps by default.

    Notes
    -----
    Scrapes do not fall on boundaries, so each boundary is interpolated between the scrapes around it: the sum over
    steps is always a difference of two scrapes.
    """
    recorded_topic(topic)
    policy = CountingPolicy(step_s, 0.0, 1.5 * step_s if max_gap_s is None else max_gap_s)
    first, last = -(-int(start.timestamp()) // step_s), int(end.timestamp()) // step_s
    margin = timedelta(seconds=policy.max_gap_s)
    key = SeriesKey(topic, "arrivals", None, step_s)
    per_day, partitions, known_cells = DAY_S // step_s, 0, 0
    index = first
    while index < last:
        until = min((index // per_day + 1) * per_day, last)
        at, to = (datetime.fromtimestamp(i * step_s, UTC) for i in (index, until))
        looks = source.history(topic, at - margin, to + margin)
        count = max(looks, default=-1) + 1
        cells = Cells(
            index,
            np.zeros((count, until - index), dtype=np.int64),
            np.zeros((count, until - index), dtype=np.bool_),
        )
        for partition, (times, values) in looks.items():
            counts, known = counts_over(times, values, index, until - index, policy)
            cells.values[partition], cells.known[partition] = counts, known
        if cells.known.any():
            store.backfill(key, cells)
        partitions, known_cells = max(partitions, count), known_cells + int(cells.known.sum())
        index = until
    steps = max(last - first, 0)
    return Backfilled(steps, partitions, known_cells / (steps * partitions) if steps and partitions else 0.0)


def _regex(topic: str) -> str:
    """Return a topic for a matcher: dots are the only characters of a name that mean something there."""
    return _quoted(topic).replace(".", "\\\\.")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

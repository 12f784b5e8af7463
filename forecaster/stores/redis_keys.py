"""Names of keys in Redis: one hash tag a topic, so that a tick is one transaction on a cluster too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from forecaster.stores.base import SeriesKey


@lru_cache(maxsize=65_536)
def escape(name: str) -> str:
    """Percent-encode a name, so that it holds neither the separator nor braces nor a glob.

    Examples
    --------
    >>> escape("a:b{c}*")
    'a%3Ab%7Bc%7D%2A'
    """
    return quote(name, safe="")


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """Key names of one Kafka cluster's series.

    Examples
    --------
    >>> keys = RedisKeys("main")
    >>> keys.day(SeriesKey("orders", "lag", "billing"), 20_458)
    'hw:day:{main:orders}:lag:billing:60:20458'
    >>> keys.field(SeriesKey("orders", "arrivals")), keys.series("orders", "k:arrivals:60")
    ('k:arrivals:60', SeriesKey(topic='orders', metric='arrivals', group=None, step_s=60))
    """

    cluster: str

    def tag(self, topic: str) -> str:
        """Return the hash tag, braces included."""
        return f"{{{escape(self.cluster)}:{escape(topic)}}}"

    @property
    def index(self) -> str:
        """Return the key of the set of recorded topics."""
        return f"hw:topics:{{{escape(self.cluster)}}}"

    def meta(self, topic: str) -> str:
        """Return the key of the hash of what is known of a topic."""
        return f"hw:meta:{self.tag(topic)}"

    def row(self, key: SeriesKey, block: int) -> str:
        """Return the key of a block of rows."""
        return f"hw:row:{self.tag(key.topic)}:{_name(key)}:{key.step_s}:{block}"

    def timeseries(self, key: SeriesKey, partition: int) -> str:
        """Return the key of one partition's time series, in RedisTimeSeries.

        Examples
        --------
        >>> RedisKeys("main").timeseries(SeriesKey("orders", "arrivals", step_s=60), 3)
        'hw:ts:{main:orders}:3:arrivals'
        """
        step = "" if key.step_s == 60 else f":{key.step_s}s"
        return f"hw:ts:{self.tag(key.topic)}:{partition}:{_name(key)}{step}"

    def day(self, key: SeriesKey, day: int) -> str:
        """Return the key of a sealed day."""
        return f"hw:day:{self.tag(key.topic)}:{_name(key)}:{key.step_s}:{day}"

    def month(self, key: SeriesKey, month: str) -> str:
        """Return the key of a month (``YYYY-MM``) of hourly roll-ups; those of steps of several lengths are apart."""
        return f"hw:day:{self.tag(key.topic)}:{_name(key)}:3600:{month}:{key.step_s}"

    def field(self, key: SeriesKey) -> str:
        """Return the field of the meta hash that says that this series exists."""
        return f"k:{_name(key)}:{key.step_s}"

    def series(self, topic: str, field: str) -> SeriesKey:
        """Return the series that :meth:`field` named."""
        _, metric, *group, step_s = field.split(":")
        return SeriesKey(topic, unquote(metric), unquote(group[0]) if group else None, int(step_s))


@lru_cache(maxsize=65_536)
def _name(key: SeriesKey) -> str:
    return escape(key.metric) if key.group is None else f"{escape(key.metric)}:{escape(key.group)}"

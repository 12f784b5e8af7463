"""Opening the store that a URL names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from forecaster.errors import StoreRefused
from forecaster.stores.redis_health import refuse_unfit
from forecaster.stores.redis_hot import HotPart
from forecaster.stores.redis_keys import RedisKeys
from forecaster.stores.redis_link import RedisLink
from forecaster.stores.redis_rows import RowsHot
from forecaster.stores.redis_store import RedisSeriesStore
from forecaster.stores.redis_timeseries import TimeseriesHot, has_timeseries
from forecaster.stores.retention import Retention

Layout = Literal["auto", "timeseries", "rows"]


def open_store(
    url: str,
    cluster: str,
    *,
    layout: Layout = "auto",
    retention: Retention | None = None,
    clock: Callable[[], datetime] | None = None,
    timeout_s: float = 10.0,
) -> RedisSeriesStore:
    """Open the series of a Kafka cluster in a Redis, a Valkey or a cluster of them.

    Parameters
    ----------
    url
        ``redis://``, ``rediss://`` or ``unix://``; of a Redis Cluster any node. Database 0.
    cluster
        Name of the Kafka cluster; series of several live side by side.
    layout
        How the newest days are kept; ``auto`` takes RedisTimeSeries where the server has it.
    retention
        What is kept for how long.
    clock
        What is taken for now; None asks the server, whose clock all writers share.
    timeout_s
        How long an answer may take.

    Raises
    ------
    StoreUnavailable
        If nobody answers.
    StoreRefused
        If access is refused, or the server would lose series: it evicts, is a replica, or is too old.
    """
    link = RedisLink(url, timeout_s=timeout_s)
    try:
        refuse_unfit(link)
        keys, keep = RedisKeys(cluster), retention or Retention()
        native = has_timeseries(link) if layout in {"auto", "timeseries"} else False
        if layout == "timeseries" and not native:
            raise StoreRefused(f"{link.place}: no RedisTimeSeries here; set the layout to auto or rows")
        hot: HotPart = TimeseriesHot(link, keys, keep) if native else RowsHot(link, keys, keep)
        logging.getLogger(__name__).info("series of %s in %s, newest days as %s", cluster, link.place, hot.name)
        return RedisSeriesStore(link, keys, hot, keep, clock)
    except BaseException:
        link.close()
        raise

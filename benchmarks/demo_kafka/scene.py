"""What is played: an afternoon of the 1998 World Cup's web site, in fast time, onto a topic of real Kafka.

Everything keeps the trace's own clock, which runs ``tempo.PACE`` times as fast as the wall's: records are counted by
minutes of the trace, members sustain records per second of the trace. A process that takes three seconds to start
stands for a pod that takes three minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from balancer.simulator.arrivals import ArrivalTrace
from balancer.simulator.world import World
from benchmarks.demo_kafka.tempo import PACE, PARTITIONS
from forecaster.ingest.trace import read_trace
from forecaster.series import ArrivalSeries
from headway.demo_setup import ZONE, sample_file

OURS, THEIRS = "planned", "by-lag"
MOST = 10
START, END = datetime(1998, 6, 18, 15, 0, tzinfo=UTC), datetime(1998, 6, 18, 17, 15, tzinfo=UTC)
"""Two matches begin at 15:30 UTC: arrivals nearly double within half an hour."""
MEMBER_WALL_S = 40.0
"""Records that one member handles in a second of the wall, whoever scales it."""
MEMBERS_AT_PEAK = 6.5
SLO = timedelta(seconds=120)
"""Of the trace; later records are late."""
START_TIME, PAUSE = timedelta(seconds=240), timedelta(seconds=30)
"""Of the trace: what planning and the rival's tuning take a start and a rebalance to cost."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """Recorded history with what follows, one member's capacity (records per second of the trace), and their world."""

    series: ArrivalSeries
    world: World

    @property
    def capacity(self) -> float:
        """Records per second of the trace that one member handles."""
        return self.world.capacity

    @property
    def slo_wall_s(self) -> float:
        """Seconds of the wall after which a record is late."""
        return SLO.total_seconds() / PACE


def make_scene(trace: Path | None = None) -> Scene:
    """Scale the trace so that its peak needs :data:`MEMBERS_AT_PEAK` members of this machine, over many partitions."""
    raw = read_trace(trace or sample_file(), timezone=ZONE).total()
    known = raw.known[0]
    at = np.arange(raw.steps)
    minutes = np.interp(at, at[known], raw.counts[0, known])
    first, last = (int((t - raw.start).total_seconds() // 60) for t in (START, END))
    peak = float(np.convolve(minutes[first:last], np.ones(5) / 5, "valid").max()) / 60
    capacity = MEMBER_WALL_S / PACE
    scaled = minutes * (MEMBERS_AT_PEAK * capacity / peak)
    counts = np.random.default_rng(0).multinomial(
        np.round(scaled).astype(np.int64), np.full(PARTITIONS, 1 / PARTITIONS)
    )
    spread = replace(
        raw,
        counts=counts.T.astype(float),
        known=np.repeat(raw.known, PARTITIONS, axis=0),
        partitions=tuple(range(PARTITIONS)),
        names=None,
    )
    world = World(
        ArrivalTrace(raw.start, 60, counts.sum(axis=1).astype(float)[None, :]),
        START,
        END,
        capacity,
        start_s=START_TIME.total_seconds(),
        pause_s=PAUSE.total_seconds(),
        slo_s=SLO.total_seconds(),
        max_replicas=MOST,
    )
    return Scene(spread, world)


class FastClock:
    """The trace's clock: stands at :data:`START` until it is let go."""

    def __init__(self) -> None:
        self._began: float | None = None

    def start(self) -> float:
        """Let it go; return the wall's monotonic instant of :data:`START`."""
        self._began = time.monotonic()
        return self._began

    def __call__(self) -> datetime:
        """Return now."""
        if self._began is None:
            return START
        return START + timedelta(seconds=(time.monotonic() - self._began) * PACE)

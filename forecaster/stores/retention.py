"""How long series are kept, and which ticks are taken: the same rules for every store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from forecaster.errors import SampleRejected
from forecaster.timegrid import DAY_S

FUTURE_STEPS = 2
"""A tick may lead the store's clock by this much: recorders are not exactly on time, and no more than that is sane."""

SEAL_GRACE_S = 300
"""A day is sealed this long after its end, so that its last ticks need no second sealing."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept for how long.

    Raises
    ------
    ValueError
        If a time is not positive.
    """

    steps: timedelta = timedelta(days=63)
    """Values a step: eight weeks for the forecaster, and one for backtests of them."""

    hourly: timedelta = timedelta(days=430)
    """Hourly roll-ups: a year and its neighbours, for yearly events."""

    late: timedelta = timedelta(days=1)
    """A tick may be this much older than the topic's newest; what is older comes in by backfill."""

    def __post_init__(self) -> None:
        for name in ("steps", "hourly", "late"):
            if getattr(self, name) <= timedelta(0):
                raise ValueError(f"retention {name}={getattr(self, name)} must be longer than zero")
        if self.late > self.steps:
            raise ValueError(f"retention late={self.late} must be within steps={self.steps}")


def steps_per_day(step_s: int) -> int:
    """Return the steps of a day.

    Raises
    ------
    ValueError
        If the step does not divide a day.

    Examples
    --------
    >>> steps_per_day(60)
    1440
    """
    if step_s <= 0 or DAY_S % step_s:
        raise ValueError(f"step_s={step_s} must be a positive number of seconds that divides a day")
    return DAY_S // step_s


def refuse_future(topic: str, start_s: int, step_s: int, now_s: float) -> None:
    """Refuse a step that begins more than two steps ahead of the store's clock.

    A single sample of the future makes a time series with a retention drop its history.

    Raises
    ------
    SampleRejected
        If it does; the message names both instants and the remedy.
    """
    if start_s > now_s + FUTURE_STEPS * step_s:
        raise SampleRejected(
            f"{topic}: the step at {_at(start_s)} is in the future of the store's clock ({_at(now_s)}); "
            "set the clocks of recorder and store by NTP"
        )


def refuse_late(topic: str, start_s: int, last_s: int | None, late: timedelta) -> None:
    """Refuse a step that is much older than the newest.

    Raises
    ------
    SampleRejected
        If it is older than the late window.

    Examples
    --------
    >>> refuse_late("orders", 0, 172_800, timedelta(days=1))
    Traceback (most recent call last):
    forecaster.errors.SampleRejected: orders: the step at 1970-01-01T00:00:00Z is over 1 day, 0:00:00 older than ...
    """
    if last_s is not None and start_s < last_s - late.total_seconds():
        raise SampleRejected(
            f"{topic}: the step at {_at(start_s)} is over {late} older than the newest ({_at(last_s)}); "
            "write history by backfill (headway import or headway ingest)"
        )


def _at(epoch_s: float) -> str:
    return datetime.fromtimestamp(int(epoch_s), UTC).isoformat().replace("+00:00", "Z")

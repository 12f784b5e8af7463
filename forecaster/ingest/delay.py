"""How late a group is, in seconds, from the recorded history of end offsets alone.

A group that has committed offset ``c`` has everything that was in the log when its end was ``c``. The delay is the age
of that instant: how long the oldest unread record has been waiting. Its resolution is the time between two looks.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from forecaster.offsets import Floats, Ints, Mask, TopicLook

LOOKS_KEPT = 128
"""So many looks are remembered; a group further behind than they reach has no known delay."""


class OffsetHistory:
    """The last looks at one topic.

    Examples
    --------
    >>> def look(at, end):
    ...     one = np.array([1])
    ...     return TopicLook(one * float(at), one * 0, one * end, one > 0, one * -1)
    >>> history = OffsetHistory()
    >>> for at, end in ((0, 0), (10, 100), (20, 200)):
    ...     history.add(look(at, end))
    >>> history.delay_ms(np.array([150]), np.array([True]), look(20, 200))[0].tolist()  # offset 150 was written at 15 s
    [5000]
    """

    def __init__(self, kept: int = LOOKS_KEPT) -> None:
        self._looks: deque[tuple[Floats, Ints, Mask]] = deque(maxlen=kept)

    def add(self, look: TopicLook) -> None:
        """Remember a look; a log that went backwards or lost its shape starts the history anew."""
        if self._looks:
            _, end, known = self._looks[-1]
            both = min(len(end), look.partitions)
            cut = known[:both] & look.known[:both] & (look.end[:both] < end[:both])
            if both < len(end) or cut.any():
                self._looks.clear()
        self._looks.append((look.at_s, look.end, look.known))

    def delay_ms(self, position: Ints, committed: Mask, look: TopicLook) -> tuple[Ints, Mask]:
        """Return the delay of a group's positions at a look, in milliseconds, and where it is known.

        0 where the group has read everything. Not known where it never committed, or is further behind than the
        history reaches.
        """
        count = look.partitions
        caught_up = committed & look.known & (position >= look.end)
        delay = np.zeros(count)
        known = caught_up.copy()
        open_ = committed & look.known & ~caught_up
        after_at, after_end = look.at_s.copy(), look.end.copy()
        for at_s, end, seen in reversed(self._looks):
            if not open_.any():
                break
            both = min(len(end), count)
            here = np.zeros(count, dtype=np.bool_)
            here[:both] = open_[:both] & seen[:both] & (end[:both] <= position[:both])
            if here.any():
                ends, times = np.zeros(count, dtype=np.int64), np.zeros(count)
                ends[:both], times[:both] = end[:both], at_s[:both]
                span = np.maximum(after_end - ends, 1)
                written = times + (after_at - times) * (position - ends) / span
                delay = np.where(here, np.maximum(look.at_s - written, 0.0), delay)
                known |= here
                open_ &= ~here
            step = open_[:both] & seen[:both]
            after_at[:both] = np.where(step, at_s[:both], after_at[:both])
            after_end[:both] = np.where(step, end[:both], after_end[:both])
        return np.rint(delay * 1000).astype(np.int64), known

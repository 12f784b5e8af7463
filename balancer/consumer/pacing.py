"""How often to commit: at the wanted interval, and longer by itself when commits are dear (pure)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommitPacer:
    """Keeps commits below a fifth of the time.

    Parameters
    ----------
    wanted_s
        Interval between commits in seconds while they are cheap.
    longest_s
        It grows no further than this.

    Examples
    --------
    >>> pacer = CommitPacer(wanted_s=0.1, longest_s=5.0)
    >>> pacer.took(0.01); pacer.interval_s
    0.1
    >>> for _ in range(50): pacer.took(0.3)
    >>> round(pacer.interval_s, 2)
    1.5
    """

    wanted_s: float
    longest_s: float
    _cost_s: float = 0.0

    def took(self, seconds: float) -> None:
        """Learn what a commit cost; a moving average over about five commits.

        One that took longer than the longest interval can make good counts as that: an outage is over when it is over.
        """
        self._cost_s += 0.2 * (min(seconds, self.longest_s / 5) - self._cost_s)

    @property
    def interval_s(self) -> float:
        """Seconds from the first record of a transaction to its commit."""
        return min(max(self.wanted_s, 5 * self._cost_s), max(self.longest_s, self.wanted_s))

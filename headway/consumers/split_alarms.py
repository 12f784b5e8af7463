"""What the leader of a routed topic finds wrong, said where people look."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headway.status.board import Board

KEPT_S = 86_400.0
"""An alarm tells of what has happened; nothing says that it is over. A day, so that a morning sees the night."""


class SplitAlarms:
    """Shows alarms of one topic as a problem of each of its groups, the latest first, each for a day.

    Parameters
    ----------
    board
        What page, terminal and metrics read.
    topic, groups
        Whose alarms, and who reads the topic.
    kept_s
        Seconds for which an alarm is shown.

    Examples
    --------
    >>> from headway.status.board import Board
    >>> board = Board()
    >>> view = board.add("billing", ("orders",))
    >>> alarms = SplitAlarms(board, "orders", ["billing"])
    >>> alarms("orders:12 was cut back from 9 to 4: records are lost")
    >>> view.problems
    {'splits of orders': 'orders:12 was cut back from 9 to 4: records are lost'}
    >>> alarms.close()
    """

    def __init__(self, board: Board, topic: str, groups: Sequence[str], kept_s: float = KEPT_S) -> None:
        self._board, self._kind, self._groups, self._kept_s = board, f"splits of {topic}", tuple(groups), kept_s
        self._lock = threading.Lock()
        self._raised: dict[str, threading.Timer] = {}

    def __call__(self, text: str) -> None:
        """Show an alarm; one that is shown already stays as long as it would have."""
        with self._lock:
            if text in self._raised:
                return
            timer = self._raised[text] = threading.Timer(self._kept_s, self._over, [text])
        timer.daemon = True
        timer.start()
        self._show()

    def close(self) -> None:
        """Forget all of them; the board keeps what it shows."""
        with self._lock:
            timers, self._raised = list(self._raised.values()), {}
        for timer in timers:
            timer.cancel()

    def _over(self, text: str) -> None:
        with self._lock:
            self._raised.pop(text, None)
        self._show()

    def _show(self) -> None:
        with self._lock:
            said = "; ".join(reversed(self._raised))
        for group in self._groups:
            if said:
                self._board.problem(group, self._kind, said)
            else:
                self._board.solved(group, self._kind)

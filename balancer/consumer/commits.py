"""Commits of a planned consumer: what was handled is made to last, and what was aborted is run again.

A commit goes on beside the loop (but for a sink, which waits): what the handler returns meanwhile waits for the next
transaction, which begins when the commit has landed. Whoever gives a partition up waits for it (`Commits.settle`).

Where handlers have effects of their own, no more than one batch is ever handled and not committed: that is what a crash
repeats, however long brokers are away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from balancer.consumer.effects import Effects
from balancer.consumer.errors import OffsetsNotCommitted, TransactionAborted, WorkerFenced
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.pacing import CommitPacer
from balancer.consumer.pulse import Pulse
from balancer.consumer.settings import Mode, WorkerSettings
from balancer.consumer.sinks import Sink
from balancer.consumer.watchdog import Watchdog

log = logging.getLogger("headway.consumer")

MOST_ABORTS = 20
"""Transactions that may be aborted in a row before the worker ends."""
MOST_WAITING = 50_000
"""Records handled, and results, that may wait for a commit to land; then handlers wait as well."""


class Flight:
    """One commit on its way, in a thread of its own unless it is run where it was made.

    ``rows`` says up to where each partition is committed by it.
    """

    def __init__(self, commit: Callable[[], None], rows: list[tuple[Held, int]]) -> None:
        self._commit = commit
        self.rows = rows
        self.is_void = True
        """Whether an abort takes back more than offsets, so that records must be run again."""
        self.error: Exception | None = None
        self.seconds = 0.0
        """How long it took."""
        self.waited_s = 0.0
        """How long the loop waited for it."""
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Commit, and keep what came of it."""
        began = time.monotonic()
        try:
            self._commit()
        except Exception as error:
            self.error = error
        self.seconds = time.monotonic() - began

    def start(self) -> None:
        """Run beside the caller."""
        self._thread = threading.Thread(target=self.run, name="headway-commit", daemon=True)
        self._thread.start()

    def wait(self, most_s: float | None = None) -> None:
        """Return once it has ended, or ``most_s`` seconds are over."""
        if self._thread is not None:
            began = time.monotonic()
            self._thread.join(most_s)
            self.waited_s += time.monotonic() - began

    @property
    def has_ended(self) -> bool:
        """Whether it has."""
        return self._thread is None or not self._thread.is_alive()


class Commits:
    """One worker's commits, one at a time; every method is for the loop's thread.

    Parameters
    ----------
    effects, group_metadata
        What makes results and offsets last together, and what it wants to know of the group.
    undo
        Called after an abort, with every position back at what is committed: fetch from there.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        holdings: Holdings,
        effects: Effects,
        group_metadata: Callable[[], Any],
        *,
        sink: Sink | None,
        watchdog: Watchdog,
        pulse: Pulse,
        undo: Callable[[], None],
    ) -> None:
        self._holdings = holdings
        self._effects = effects
        self._group_metadata = group_metadata
        self._sink = sink
        self._watchdog = watchdog
        self._pulse = pulse
        self._undo = undo
        self._beside = settings.mode is not Mode.SINK
        repeats = settings.mode in (Mode.AT_LEAST_ONCE, Mode.MEMBERSHIP)
        self._batch = settings.poll_records if repeats else None
        self._open = self._flying = 0  # records handled since the last commit began, and those that it is about
        self._limit_s = settings.commit_timeout.total_seconds()
        self._pacer = CommitPacer(
            settings.commit_interval.total_seconds(), settings.longest_commit_interval.total_seconds()
        )
        self._topic = settings.output_topic if sink is None else None
        self._writer = effects.writer(self._topic) if self._topic else None
        self._flight: Flight | None = None
        self._waiting: list[tuple[str, Any, Any, list[tuple[str, Any]] | None]] = []
        self._since: float | None = None
        self._aborts = 0

    def touched(self, now: float) -> None:
        """Something is to be committed; the first such word after a commit starts the interval."""
        if self._since is None:
            self._since = now

    def handled(self, records: int, began: float) -> None:
        """Records were handled, from ``began`` on, and are to be committed."""
        self._open += records
        self.touched(began)

    @property
    def room(self) -> int:
        """Records that may be handled before a commit lands; 0 while handlers must wait (`rest`)."""
        if self._flight is not None and len(self._waiting) >= MOST_WAITING:
            return 0
        if self._batch is not None:
            return max(0, self._batch - self._open - self._flying)
        return MOST_WAITING if self._flight is None else max(0, MOST_WAITING - self._open)

    def rest(self, seconds: float) -> None:
        """Wait for the commit on its way, for a moment: the loop has more to do than to handle."""
        if self._flight is not None:
            self._flight.wait(seconds)

    # -- what is written ----------------------------------------------------------------------------------------
    @property
    def writer(self) -> Callable[[Any, bytes], None] | None:
        """The short way for key and value to the output topic; good until this object is called next."""
        return self._writer if self._flight is None or self._writer is None else self._hold_back

    def _hold_back(self, key: Any, value: bytes) -> None:
        self._waiting.append((self._topic or "", key, value, None))

    @property
    def has_written(self) -> bool:
        """Whether results wait for the next commit."""
        return bool(self._waiting) or (self._flight is None and self._effects.is_open)

    def write(self, topic: str, key: Any, value: Any, headers: list[tuple[str, Any]] | None = None) -> None:
        """Write one record into the open transaction, or the next one while a commit is on its way."""
        if self._flight is not None:
            self._waiting.append((topic, key, value, headers))
            return
        if not self._effects.is_open:
            self._effects.begin()
        self._effects.produce(topic, key, value, headers)

    # -- commits ------------------------------------------------------------------------------------------------
    def turn(self) -> None:
        """Do what is due: land what has arrived, begin the next commit."""
        if self._flight is not None:
            if not self._flight.has_ended:
                return
            self.land()
        self._effects.poll()
        if self._since is None:
            return
        # With half a batch on its way, the other half may be handled meanwhile.
        is_full = self._batch is not None and 2 * self._open >= self._batch
        if is_full or time.monotonic() - self._since >= self._pacer.interval_s:
            self._launch(beside=self._beside)

    def settle(self, helds: list[Held]) -> None:
        """Make what was handled of these last: by the commit on its way, if that is enough, else by one more.

        After an abort nothing of them is handled any more, and that is what lasts.
        """
        self.land()
        while any(held.dirty and self._holdings.of(held.lease.partition) is held for held in helds):
            self._launch(beside=False)

    def _launch(self, *, beside: bool) -> None:
        dirty = [held for held in self._holdings if held.dirty]
        self._since = None
        if not dirty and not self._effects.is_open:
            self._open = self._flying = 0  # what was handled was of partitions that are gone: no commit is about it
            return
        rows = {held.lease.partition: held.offset_row for held in dirty}
        metadata = self._group_metadata()
        has_written = self._effects.is_open

        def commit() -> None:
            with self._watchdog.guard("a commit", self._limit_s):
                flight.is_void = has_written
                if self._sink is not None:
                    if has_written:  # dead letters last before the sink passes their records
                        self._effects.commit({}, metadata)
                        flight.is_void = False
                    for held in dirty:
                        self._sink.write(
                            held.lease.partition, held.lease.epoch, held.committed, held.position, held.results
                        )
                self._effects.commit(rows, metadata)

        self._flight = flight = Flight(commit, [(held, held.position) for held in dirty])
        self._open, self._flying = 0, self._open
        for held in dirty:
            held.dirty = False
        if beside:
            self._flight.start()
        else:
            self._flight.run()
            self._flight.waited_s = self._flight.seconds
            self.land()

    def land(self) -> None:
        """Wait for the commit on its way, if there is one, and go by what came of it."""
        flight = self._flight
        if flight is None:
            return
        flight.wait()
        self._flight = None
        if isinstance(flight.error, TransactionAborted):
            if flight.is_void and not isinstance(flight.error, OffsetsNotCommitted):
                self.abort(str(flight.error))
                return
            self._undo_offsets(flight)
        elif flight.error is not None:
            raise flight.error
        else:
            now = time.monotonic()
            for held, position in flight.rows:
                held.settled(position, now)
            self._aborts = self._flying = 0
            self._pacer.took(flight.seconds)
            self._pulse.committed(flight.waited_s)
        waiting, self._waiting = self._waiting, []
        try:
            for topic, key, value, headers in waiting:
                if self._writer is not None and headers is None and topic == self._topic:
                    self._writer(key, value)
                else:
                    self.write(topic, key, value, headers)
        except TransactionAborted as aborted:
            self.abort(str(aborted))

    def abort(self, why: str) -> None:
        """Undo everything since the last commit, and run it again."""
        self.land()
        self._waiting.clear()
        self._abort(why, "its records are run again")
        self._since = None
        self._open = self._flying = 0
        for held in self._holdings:
            held.rewound()
        self._undo()
        self._back_off()

    def _undo_offsets(self, flight: Flight) -> None:
        """Commit again what a transaction of offsets alone said: no effect was undone, so nothing is run again."""
        self._abort(str(flight.error), "it held offsets alone, and they are committed again")
        for held, position in flight.rows:
            if self._sink is not None:
                held.settled(position, held.committed_at)  # the sink has it
            held.dirty = True
        self._open, self._flying = self._open + self._flying, 0
        self.touched(time.monotonic())
        self._back_off()

    def _abort(self, why: str, so: str) -> None:
        self._aborts += 1
        log.warning("transaction aborted (%s); %s", why, so)
        if self._aborts > MOST_ABORTS:
            raise WorkerFenced(f"{self._aborts} transactions aborted in a row, the last one because of {why}")
        with self._watchdog.guard("an abort", self._limit_s):
            self._effects.abort()

    def _back_off(self) -> None:
        if self._aborts > 1:
            time.sleep(min(1.0, 0.01 * 2**self._aborts))

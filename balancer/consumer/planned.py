"""The planned consumer: one loop that fetches, handles, commits, and hands over when it is told to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from balancer.consumer.assembly import open_effects, open_leases
from balancer.consumer.commits import Commits
from balancer.consumer.errors import (
    HandlerMisuse,
    OffsetsUnread,
    RecordRefused,
    SinkAhead,
    TransactionAborted,
    WorkerFenced,
)
from balancer.consumer.failures import GiveUp, dead_letter
from balancer.consumer.handling import Handling, Misfit
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.kafka import OUT_OF_RANGE, TRUNCATED, DataConsumer, is_gone, refused
from balancer.consumer.keeper import LeaseKeeper, Word
from balancer.consumer.orders import Orders, orders_in
from balancer.consumer.owed import Owed
from balancer.consumer.pulse import Pulse
from balancer.consumer.records import Record
from balancer.consumer.settings import Mode, WorkerSettings
from balancer.consumer.sinks import Sink
from balancer.consumer.starts import Unread, start_of
from balancer.consumer.watchdog import Watchdog
from balancer.leases.base import (
    Lease,
    LeaseRefused,
    LeaseStore,
    LeaseStoreError,
    WorkerProfile,
)
from balancer.leases.notes import commit_metadata
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.consumer")

PATIENCE_S = 3.0
"""Longest wait for committed offsets while other partitions are to be handled."""
SLICE_S = 0.05
"""Longest time in handlers before commits, releases and retries get their turn."""


class PlannedConsumer:
    """Consumes the partitions that the planner grants, exactly once by default.

    Parameters
    ----------
    settings
        What to consume, how to commit, where the leases are.
    handler
        A function of one :class:`Record`; with ``batch=True`` of a list of records of one partition; or an async
        function of one record, run concurrently over partitions and in order within each. It returns nothing,
        bytes, or (key, value) pairs for the output topic.
    sink
        In sink mode: where results go, guarded by the lease epoch.
    leases, watchdog
        For tests; made from the settings by default.

    Examples
    --------
    ::

        settings = WorkerSettings(group="orders", topics=("orders",), bootstrap_servers="127.0.0.1:9092",
                                  output_topic="invoices")
        PlannedConsumer(settings, lambda record: record.value.upper()).run()
    """

    def __init__(
        self,
        settings: WorkerSettings,
        handler: Callable[[Any], Any],
        *,
        batch: bool = False,
        sink: Sink | None = None,
        leases: LeaseStore | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        if (sink is not None) != (settings.mode is Mode.SINK):
            raise HandlerMisuse(f"mode={settings.mode} {'needs a' if sink is None else 'takes no'} sink")
        self.settings = settings
        self._sink = sink
        self._store = leases if leases is not None else open_leases(settings)
        self._watchdog = watchdog or Watchdog()
        self._holdings = Holdings()
        self._handling = Handling(settings, handler, batch, self._emit)
        self._pulse = Pulse()
        self._keeper = LeaseKeeper(self._store, settings.lease_ttl, self._pulse.beat)
        self._stopping = threading.Event()
        self._stop_by: float | None = None
        self._obeyed: Word | None = None
        self._owed = Owed(self._store, self._keeper)
        self._unread = Unread()
        self._backlog: list[Any] = []
        self._client: DataConsumer | None = None
        self.is_ready = threading.Event()

    @property
    def _data(self) -> DataConsumer:
        if self._client is None:
            raise WorkerFenced("the worker has not begun")
        return self._client

    # -- life ---------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Drain, hand over, leave, return from ``run``; safe from a signal handler or another thread."""
        self._stopping.set()

    def run(self) -> None:
        """Work until ``stop`` is called.

        Raises
        ------
        WorkerFenced
            If this life is over; end the process, a supervisor starts a new one.
        RecordRefused, HandlerMisuse, StartUnknown, BrokerRefused
            After an orderly release, where that was possible.
        """
        self._watchdog.start()
        try:
            self._begin()
            while not self._is_done():
                self._turn()
            self._end()
        except (RecordRefused, HandlerMisuse):
            self._end()
            raise
        finally:
            self._keeper.stop()
            self._watchdog.stop()
            self._handling.close()
            if self._client is not None:
                self._client.close()

    def _begin(self) -> None:
        s = self.settings
        profile = WorkerProfile(mode=s.mode.value, pod=s.pod, rack=str(s.properties.get("client.rack", "")))
        patience = 10 * s.lease_ttl.total_seconds() + 30
        owner = self._keeper.claim(s.instance, token_hex(4), profile, patience)
        self._keeper.start()
        client_id = f"headway.{s.group}.{owner}"
        with self._watchdog.guard("starting", 120):
            self._effects = open_effects(s, owner.instance, client_id)
            self._effects.initialise()
            self._keeper.say(initialised=True)
            self._client = DataConsumer(s, client_id)
            self._data.warm(s.topics)
            self._effects.warm(t for t in (s.output_topic, s.dead_letter_topic) if t)
        self._commits = Commits(
            s,
            self._holdings,
            self._effects,
            self._data.group_metadata,
            sink=self._sink,
            watchdog=self._watchdog,
            pulse=self._pulse,
            undo=self._run_again,
        )
        self._keeper.say(ready=True)
        self.is_ready.set()
        log.info("%s of group %s is ready", owner, s.group)

    def _is_done(self) -> bool:
        if not self._stopping.is_set():
            return False
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self.settings.drain_timeout.total_seconds()
            self._keeper.say(draining=True)
        return (not self._holdings and not self._owed) or time.monotonic() > self._stop_by

    def _end(self) -> None:
        """Give up what is left, in order, and leave."""
        self._release(list(self._holdings))
        self._keeper.say(draining=True)
        if (word := self._keeper.word) is not None:  # it names what else is ours: leases whose offsets never came
            for lease in self._orders(word, quiet=True, leaving=True).give:
                self._owed.add(lease)
        self._keeper.stop()
        try:
            self._owed.pay()
            self._store.leave(self._keeper.owner)
        except (LeaseRefused, LeaseStoreError) as error:
            log.warning("left without a word: %s", error)
        self._effects.close()

    # -- one turn -----------------------------------------------------------------------------------------------
    def _turn(self) -> None:
        keeper, now = self._keeper, time.monotonic()
        if keeper.refused is not None:
            raise WorkerFenced(f"renewal refused: {keeper.refused}")
        if self.settings.mode is Mode.MEMBERSHIP and now > keeper.deadline - self.settings.lease_margin.total_seconds():
            raise WorkerFenced("no renewal before the deadline: without transactions, silence means stop")
        word = keeper.word
        if word is not None and word is not self._obeyed:
            self._obeyed = word
            self._obey(word)
        if room := self._commits.room:
            most = min(self.settings.poll_records, room)
            batch, self._backlog = self._backlog or self._data.poll(most, 0.005), []
            if batch:
                self._handle(batch)
        else:  # a commit does not get through: renewals and orders go on, handlers wait
            self._commits.rest(0.005)
        self._commits.turn()
        self._owed.pay()
        self._tend(time.monotonic())

    def _handle(self, batch: list[Any]) -> None:
        began = time.monotonic()
        self._pulse.begins(began)
        self._pulse.saw(batch)
        self._handling.write = self._commits.writer
        with self._watchdog.guard("a handler", self.settings.handler_timeout.total_seconds() + SLICE_S):
            try:
                handled, self._backlog, misfits = self._handling.run(batch, self._holdings, began + SLICE_S)
            except TransactionAborted as aborted:
                handled, misfits = 0, []
                self._commits.abort(str(aborted))
        now = time.monotonic()
        if handled:
            self._commits.handled(handled, began)
        self._pulse.worked(handled, now - began)
        try:
            for misfit in misfits:
                self._misfit(misfit, now)
        except TransactionAborted as aborted:  # a dead letter that could not be written
            self._commits.abort(str(aborted))

    def _emit(self, held: Held, record: Record, outputs: list[tuple[Any, Any]], result: Any) -> None:
        """Take a handler's result; called by :class:`Handling` once per record."""
        if self._sink is not None:
            held.results.append(result)
            return
        topic = self.settings.output_topic
        if outputs and topic is None:
            raise HandlerMisuse(f"handler returned a result for {record!r}, but there is no output_topic")
        for key, value in outputs:
            self._commits.write(topic or "", key, value)

    def _run_again(self) -> None:
        """Fetch from what is committed, after an abort."""
        self._backlog = []
        for held in self._holdings:
            if held.blocked_until is None:
                self._data.seek(held.lease.partition, held.position)

    # -- what the planner says ----------------------------------------------------------------------------------
    def _obey(self, word: Word) -> None:
        quiet = word.mark == self._keeper.mark
        asked = self._orders(word, quiet=quiet, leaving=self._stopping.is_set())
        if asked.gone:
            self._forget(asked.gone)
        for lease in asked.give:
            self._owed.add(lease)
        if quiet and (due := self._unread.due(asked.unknown, time.monotonic())):
            self._start(due)
        if asked.void:
            self._forget(asked.void)
            for held in asked.void:
                self._owed.add(held.lease)
        if asked.release:
            self._release(asked.release)
        if word.view.released and self._holdings:
            self._release(list(self._holdings))
        if asked.take and not word.view.draining and not self._stopping.is_set():
            self._take(asked.take)

    def _orders(self, word: Word, *, quiet: bool, leaving: bool) -> Orders:
        return orders_in(word.view, self._keeper.owner, self._holdings, self._owed, quiet=quiet, leaving=leaving)

    def _release(self, helds: list[Held]) -> None:
        """Commit, stop fetching, give up: the offset goes along, so that the next owner saves a read."""
        self._commits.settle(helds)
        partitions = [held.lease.partition for held in helds]
        if partitions:
            self._data.unassign(partitions)
        for held in helds:
            self._drop(held)
            offset, leader_epoch, _ = held.offset_row
            self._owed.add(held.lease, offset, leader_epoch)
        self._owed.pay()

    def _forget(self, helds: list[Held]) -> None:
        """Drop partitions without a commit: they were deleted, created again, or are no longer ours."""
        lost_work = any(held.dirty for held in helds)
        self._data.unassign([held.lease.partition for held in helds])
        for held in helds:
            log.warning("%s is dropped without a commit", held.lease.partition)
            self._drop(held)
        if lost_work and self._commits.has_written:
            self._commits.abort("it held records of partitions that are gone")

    def _drop(self, held: Held) -> None:
        tp = held.lease.partition
        self._holdings.drop(tp)
        self._purge(tp)

    def _purge(self, tp: TopicPartition) -> None:
        """Drop what was fetched of a partition and not yet handled; it is fetched again, or by somebody else."""
        self._backlog = [m for m in self._backlog if (m.topic(), m.partition()) != (tp.topic, tp.partition)]

    def _take(self, partitions: list[TopicPartition]) -> None:
        taken = []
        for tp in partitions:
            self._keeper.mark += 1
            try:
                taken.append(self._store.take(self._keeper.owner, tp))
            except (LeaseRefused, LeaseStoreError) as error:
                log.info("take of %s: %s", tp, error)
        if taken:
            self._start(taken)

    # -- where to start -----------------------------------------------------------------------------------------
    def _start(self, leases: list[Lease]) -> None:
        """Start partitions at the offset handed over, else at the committed one, else where the rule says."""
        unread = [lease.partition for lease in leases if lease.offset is None]
        with self._watchdog.guard("reading offsets", self.settings.commit_timeout.total_seconds()):
            try:
                committed = self._data.committed(unread, PATIENCE_S) if unread else {}
            except OffsetsUnread as silence:
                self._unread.failed(unread, time.monotonic())
                log.warning("%s; %d partitions wait, asked again later", silence, len(unread))
                committed, leases = {}, [lease for lease in leases if lease.offset is not None]
            starts = {}
            for lease in leases:
                tp = lease.partition
                try:
                    starts[tp] = start_of(lease, committed.get(tp), self.settings, self._sink, self._data.log_range)
                except SinkAhead as ahead:
                    log.error("%s", ahead)
                    self._pulse.failed()
                    self._owed.add(lease)
                except Exception as failure:
                    if not is_gone(failure):
                        raise
                    log.error("%s does not exist any more; waiting for the planner to drop its lease", tp)
        now = time.monotonic()
        self._data.assign({tp: (offset, epoch) for tp, (offset, epoch, _) in starts.items()})
        for lease in leases:
            if lease.partition not in starts:
                continue  # asked again with the next word, if it is still ours then
            offset, leader_epoch, is_known = starts[lease.partition]
            note = commit_metadata(self._keeper.owner, lease.epoch, lease.topic_id)
            held = Held(lease, offset, offset, note, leader_epoch, dirty=not is_known, committed_at=now)
            self._holdings.add(held)
            self._unread.read(lease.partition)
            if held.dirty:
                self._commits.touched(now)  # a start that was decided, not read, is made to last

    # -- what goes wrong with a partition -----------------------------------------------------------------------
    def _misfit(self, misfit: Misfit, now: float) -> None:
        held = misfit.held
        if held is None:
            error = misfit.message.error()
            self._client_error(misfit.message, error)
            return
        tp = held.lease.partition
        if isinstance(misfit.failure, HandlerMisuse):
            raise misfit.failure
        self._purge(tp)
        held.failures += 1
        delay = self.settings.failures.delay(held.failures)
        self._pulse.failed()
        text = f"{tp}@{held.position} failed ({held.failures}): {misfit.failure!r}"
        if delay is not None:
            log.warning("%s; again in %.1f s", text, delay.total_seconds())
            self._block(held, now + delay.total_seconds())
            return
        if self.settings.failures.give_up is GiveUp.STOP:
            raise RecordRefused(f"{text}; giving up, as the policy says")
        log.error("%s; given up: %s", text, self.settings.failures.give_up.value)
        if self.settings.failures.give_up is GiveUp.DEAD_LETTER:
            self._commits.write(self.settings.dead_letter_topic or "", *dead_letter(misfit.message, misfit.failure))
        held.position, held.last = misfit.message.offset() + 1, misfit.message
        held.dirty, held.failures, held.blocked_until = True, 0, None
        self._commits.handled(1, now)
        self._data.seek(tp, held.position)

    def _block(self, held: Held, until: float) -> None:
        """Pause one partition; the others flow."""
        self._data.pause(held.lease.partition)
        held.blocked_until = until

    def _client_error(self, message: Any, error: Any) -> None:
        if (no := refused(error)) is not None:
            raise no
        held = self._holdings.get((message.topic(), message.partition())) if message.topic() else None
        if held is None or error.code() not in (OUT_OF_RANGE, TRUNCATED):
            log.info("client says: %s", error.str())
            return
        tp = held.lease.partition
        try:
            low, high = self._data.log_range(tp)
        except Exception as failure:
            if not is_gone(failure):
                raise
            log.error("%s does not exist any more; waiting for the planner to void its lease", tp)
            self._block(held, time.monotonic() + 5 * self.settings.lease_ttl.total_seconds())
            return
        if held.position < low:
            self._pass_gap(held, low, f"{low - held.position} records were deleted before they were read")
        elif held.blocked_until is None and held.failures == 0:
            # Beyond the end: created again (the planner will void the lease) or truncated by an unclean election.
            log.error("%s: position %d is beyond the log end %d; waiting for the planner", tp, held.position, high)
            held.failures = -1
            self._block(held, time.monotonic() + 5 * self.settings.lease_ttl.total_seconds())
        else:
            held.failures = 0
            self._pass_gap(held, high, f"the log was cut back from {held.position} to {high}")

    def _pass_gap(self, held: Held, to: int, what: str) -> None:
        tp = held.lease.partition
        if self.settings.stop_on_gap:
            raise RecordRefused(f"{tp}: {what}; stopping, as stop_on_gap says")
        log.error("%s: %s; going on at %d", tp, what, to)
        self._pulse.gap(abs(to - held.position))
        self._data.unassign([tp])
        self._data.assign({tp: (to, None)})
        held.position, held.last, held.leader_epoch, held.dirty = to, None, None, True
        self._commits.touched(time.monotonic())

    def _tend(self, now: float) -> None:
        """Let blocked partitions go on when their time has come; commit again what brokers would forget."""
        if now < self._tend_at:
            return
        self._tend_at = now + 0.01
        for held in self._holdings:
            if held.blocked_until is not None and now >= held.blocked_until:
                held.blocked_until = None
                self._data.resume(held.lease.partition, held.position)
            if now - held.committed_at > self.settings.recommit_every.total_seconds():
                held.dirty, held.committed_at = True, now
                self._commits.touched(now)

    _tend_at = 0.0

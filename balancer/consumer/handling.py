"""Runs the user's handler over what was fetched: record by record, batch by batch, or concurrently."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from balancer.consumer.errors import HandlerMisuse, TransactionAborted, WorkerFenced
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.records import Record, outputs_of, records_of
from balancer.consumer.settings import Mode, WorkerSettings

Emit = Callable[[Held, Record, list[tuple[Any, Any]], Any], None]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something that is not a record handled: a client error (``held`` is None), or a failed record."""

    message: Any
    held: Held | None = None
    failure: BaseException | None = None


class Handling:
    """Three ways to run a handler, one result: how many records were handled, what is left, what went wrong.

    A record whose partition is not held, is blocked, or lies before the position is dropped: it belongs to an
    earlier lease, to a transaction that was aborted, or behind a record that failed.
    """

    def __init__(self, settings: WorkerSettings, handler: Callable[[Any], Any], batch: bool, emit: Emit) -> None:
        self._handler = handler
        self._emit = emit
        self.write: Callable[[Any, bytes], None] | None = None
        """The short way of the commonest result, bytes for the output topic; set once the worker has begun."""
        self._plain_results = settings.mode is Mode.SINK
        self._loop: asyncio.AbstractEventLoop | None = None
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
            if batch:
                raise HandlerMisuse("an async handler gets one record at a time: leave batch=True out")
            self.run = self._concurrently
        elif batch:
            self.run = self._in_batches
        else:
            self.run = self._one_by_one

    def close(self) -> None:
        """Give up the event loop of an async handler."""
        if self._loop is not None:
            self._loop.close()

    def _one_by_one(self, batch: list[Any], holdings: Holdings, until: float) -> tuple[int, list[Any], list[Misfit]]:
        """Handle record by record: what can be done for a whole batch, or a run of one partition, is done for that."""
        batch, misfits = _without_errors(batch)
        handled = at = 0
        for (topic, partition), size in _runs(batch):
            run, at = batch[at : at + size], at + size
            held = holdings.get((topic, partition))
            if held is None or held.blocked_until is not None:
                continue
            done, seen = self._one_run(run, held, until, misfits)
            handled += done
            if done and time.monotonic() > until:
                return handled, batch[at - size + seen :], misfits
        return handled, [], misfits

    def _one_run(self, run: list[Any], held: Held, until: float, misfits: list[Misfit]) -> tuple[int, int]:
        """Handle records of one partition; return how many were handled, and seen, before time was up or one failed."""
        write, handler, clock, take_result = self.write, self._handler, time.monotonic, self._take_result
        position, last, handled, seen = held.position, None, 0, 0
        try:
            for record, offset in zip(records_of(run, held.lease.epoch), map(type(run[0]).offset, run), strict=True):
                seen += 1
                if offset < position:
                    continue
                try:
                    result = handler(record)
                    if type(result) is bytes and write is not None:
                        write(record[2], result)
                    elif result is not None:
                        take_result(held, record, result)
                except (WorkerFenced, TransactionAborted):
                    raise
                except Exception as failure:
                    misfits.append(Misfit(record[0], held, failure))
                    held.blocked_until = 0.0  # the loop decides for how long; what is behind it waits
                    break
                position, last = offset + 1, record[0]
                handled += 1
                if clock() > until:
                    break
        finally:
            _advance(held, position, last)
        return handled, seen

    def _take_result(self, held: Held, record: Record, result: Any) -> None:
        if self._plain_results:
            self._emit(held, record, [], result)
            return
        if inspect.isawaitable(result):
            raise HandlerMisuse(f"handler returned an awaitable for {record!r}: declare it with async def")
        outputs = [(record.key, result)] if type(result) is bytes else list(outputs_of(result, record))
        self._emit(held, record, outputs, result)

    def _in_batches(self, batch: list[Any], holdings: Holdings, until: float) -> tuple[int, list[Any], list[Misfit]]:
        handled = 0
        groups, misfits = self._by_partition(batch, holdings)
        for held, messages in groups:
            # after a failure one by one, so that the record that fails is found
            size = 1 if held.failures else len(messages)
            for start in range(0, len(messages), size):
                part = messages[start : start + size]
                try:
                    result = self._handler(list(records_of(part, held.lease.epoch)))
                    if result is not None:
                        self._take_result(held, Record(part[-1], held.lease.epoch), result)
                except (WorkerFenced, TransactionAborted):
                    raise
                except Exception as failure:
                    if size > 1 and not isinstance(failure, HandlerMisuse):
                        held.failures = 1
                    misfits.append(Misfit(part[0], held, failure))
                    held.blocked_until = 0.0
                    break
                held.position, held.last, held.dirty, held.failures = part[-1].offset() + 1, part[-1], True, 0
                handled += len(part)
        return handled, [], misfits

    def _concurrently(self, batch: list[Any], holdings: Holdings, until: float) -> tuple[int, list[Any], list[Misfit]]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        groups, misfits = self._by_partition(batch, holdings)
        left: list[Any] = []

        async def in_order(held: Held, messages: list[Any]) -> int:
            for index, message in enumerate(messages):
                record = Record(message, held.lease.epoch)
                try:
                    result = await self._handler(record)
                    if result is not None:
                        self._take_result(held, record, result)
                except (WorkerFenced, TransactionAborted):
                    raise
                except Exception as failure:
                    misfits.append(Misfit(message, held, failure))
                    held.blocked_until = 0.0
                    return index
                held.position, held.last, held.dirty, held.failures = message.offset() + 1, message, True, 0
                if time.monotonic() > until:
                    left.extend(messages[index + 1 :])
                    return index + 1
            return len(messages)

        async def together() -> int:
            return sum(await asyncio.gather(*(in_order(held, messages) for held, messages in groups)))

        return self._loop.run_until_complete(together()), left, misfits

    def _by_partition(self, batch: list[Any], holdings: Holdings) -> tuple[list[tuple[Held, list[Any]]], list[Misfit]]:
        groups: dict[int, tuple[Held, list[Any]]] = {}
        batch, misfits = _without_errors(batch)
        for message in batch:
            held = holdings.get((message.topic(), message.partition()))
            if held is not None and message.offset() >= held.position and held.blocked_until is None:
                groups.setdefault(id(held), (held, []))[1].append(message)
        return list(groups.values()), misfits


def _without_errors(batch: list[Any]) -> tuple[list[Any], list[Misfit]]:
    """Separate messages from errors of the client."""
    if not batch or not any(map(type(batch[0]).error, batch)):
        return batch, []
    return [m for m in batch if m.error() is None], [Misfit(m) for m in batch if m.error() is not None]


def _runs(batch: list[Any]) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield (topic, partition) and length of each run of messages of one partition."""
    if batch:
        kind = type(batch[0])
        for where, run in groupby(zip(map(kind.topic, batch), map(kind.partition, batch), strict=True)):
            yield where, len(list(run))


def _advance(held: Held, position: int, last: Any) -> None:
    """Note how far a partition is handled; ``last`` None: no further than it was."""
    if last is not None:
        held.position, held.last, held.dirty, held.failures = position, last, True, 0

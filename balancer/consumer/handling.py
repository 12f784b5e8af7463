"""Runs the user's handler over what was fetched: record by record, batch by batch, or concurrently."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from balancer.consumer.errors import HandlerMisuse, TransactionAborted, WorkerFenced
from balancer.consumer.holdings import Held, Holdings
from balancer.consumer.records import Record, outputs_of
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
        """Handle record by record; runs for each record of a full stream, so it looks up only what has changed."""
        write, handler, clock, take_result = self.write, self._handler, time.monotonic, self._take_result
        handled, misfits = 0, []
        topic, partition, held, position, epoch, last = None, -1, None, 0, 0, None
        seen = 0
        try:
            for seen, message in enumerate(batch, 1):  # noqa: B007 - used after the loop
                if message.error() is not None:
                    misfits.append(Misfit(message))
                    continue
                if message.partition() != partition or message.topic() != topic:
                    _advance(held, position, last)
                    topic, partition, last = message.topic(), message.partition(), None
                    held = holdings.get((topic, partition))
                    if held is not None:
                        position, epoch = held.position, held.lease.epoch
                offset = message.offset()
                if held is None or offset < position or held.blocked_until is not None:
                    continue
                record = Record(message, epoch)
                try:
                    result = handler(record)
                    if type(result) is bytes and write is not None:
                        write(message.key(), result)
                    elif result is not None:
                        take_result(held, record, result)
                except (WorkerFenced, TransactionAborted):
                    raise
                except Exception as failure:
                    misfits.append(Misfit(message, held, failure))
                    held.blocked_until = 0.0  # the loop decides for how long
                    continue
                position, last = offset + 1, message
                handled += 1
                if clock() > until:
                    break
        finally:
            _advance(held, position, last)
        return handled, batch[seen:], misfits

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
                    result = self._handler([Record(m, held.lease.epoch) for m in part])
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
        misfits = []
        for message in batch:
            if message.error() is not None:
                misfits.append(Misfit(message))
                continue
            held = holdings.get((message.topic(), message.partition()))
            if held is not None and message.offset() >= held.position and held.blocked_until is None:
                groups.setdefault(id(held), (held, []))[1].append(message)
        return list(groups.values()), misfits


def _advance(held: Held | None, position: int, last: Any) -> None:
    """Note how far a partition is handled; ``last`` None: no further than it was."""
    if held is not None and last is not None:
        held.position, held.last, held.dirty, held.failures = position, last, True, 0

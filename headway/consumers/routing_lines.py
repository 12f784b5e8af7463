"""JSON lines on their way through a routed producer: one transaction a batch, one line an acknowledgement."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from headway.errors import HeadwayError

MOST = 500
"""Lines in one transaction."""


def lines_in_batches(lines: Iterable[str], wait_s: float, most: int = MOST) -> Iterator[list[str]]:
    """Yield what has come in, at the latest ``wait_s`` after the first line of a batch.

    Examples
    --------
    >>> list(lines_in_batches(["a", "b", "c"], 5.0, most=2))
    [['a', 'b'], ['c']]
    """
    inbox: queue.Queue[str | None] = queue.Queue(maxsize=4 * most)

    def read() -> None:
        for line in lines:
            inbox.put(line)
        inbox.put(None)

    threading.Thread(target=read, name="headway-stdin", daemon=True).start()
    is_open = True
    while is_open:
        batch: list[str] = []
        while len(batch) < most:
            try:
                line = inbox.get(timeout=wait_s if batch else None)
            except queue.Empty:
                break
            if line is None:
                is_open = False
                break
            batch.append(line)
        if batch:
            yield batch


def record_of(line: str) -> tuple[str | None, str | None]:
    """Return (key, value) of a line.

    Raises
    ------
    HeadwayError
        If it is not an object with a value.

    Examples
    --------
    >>> record_of('{"key": "a", "value": {"n": 1}}')
    ('a', '{"n": 1}')
    """
    try:
        facts = json.loads(line)
        key, value = facts.get("key"), facts["value"]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise HeadwayError(f'{line.strip()[:80]!r} is not {{"key": ..., "value": ...}}') from error
    return (
        key if key is None or isinstance(key, str) else json.dumps(key),
        value if value is None or isinstance(value, str) else json.dumps(value),
    )


def send_batch(producer: Any, topic: str, batch: list[str]) -> list[str]:
    """Send a batch as one transaction; return its acknowledgements in order.

    A line that is no record ends the batch: what was before it is committed first.

    Raises
    ------
    HeadwayError
        Behind the acknowledgements of what came before, if a line is no record or a record was not delivered.
    """
    records, wrong = [], None
    for line in batch:
        try:
            records.append(record_of(line))
        except HeadwayError as error:
            wrong = error
            break
    acknowledged: list[str | None] = [None] * len(records)
    failed: list[str] = []
    if records:
        producer.begin_transaction()
        for index, (key, value) in enumerate(records):

            def delivered(error: Any, message: Any, index: int = index, key: str | None = key) -> None:
                if error is not None:
                    failed.append(error.str())
                    return
                row = {"key": key, "partition": message.partition(), "offset": message.offset()}
                acknowledged[index] = json.dumps({**row, "epoch": producer.epochs[topic]})

            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction()
    if failed:
        raise HeadwayError(f"{len(failed)} records were not delivered: {failed[0]}")
    done = [line for line in acknowledged if line is not None]
    if wrong is not None:
        import sys

        sys.stdout.write("".join(line + "\n" for line in done))
        sys.stdout.flush()
        raise wrong
    return done

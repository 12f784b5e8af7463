"""Heavy work in child processes, bounded: what-ifs and training never hold up a tick or a reader.

Children are spawned at their first use, run at low priority with one thread for arithmetic, and end with us, even if
we are killed; a task that takes longer than it may ends with its process, and the next one gets a new process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import Any, TypeVar

from headway.errors import HeadwayError, NotReady

T = TypeVar("T")


class Overdue(NotReady):
    """A task took longer than it may."""


class Children:
    """A few processes for one kind of work.

    Parameters
    ----------
    at_once
        Processes, and so tasks, at a time.
    limit_s
        How long one task may take, waiting included.
    what
        Names the work in errors.
    """

    def __init__(self, at_once: int, limit_s: float, what: str) -> None:
        self._at_once, self._limit_s, self._what = at_once, limit_s, what
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None

    def run(self, task: Callable[..., T], *arguments: Any) -> T:
        """Run a module-level function in a child and return its answer; what it raises is raised here.

        Raises
        ------
        Overdue
            If it took too long; its process is ended.
        HeadwayError
            If its process died.
        """
        try:
            return self._submit(task, *arguments).result(self._limit_s)
        except TimeoutError:
            self.close()
            raise Overdue(f"{self._what} took longer than {self._limit_s:g} s and was ended") from None
        except BrokenProcessPool:
            self.close()
            raise HeadwayError(f"{self._what}: its process died; it is started anew the next time") from None

    def _submit(self, task: Callable[..., T], *arguments: Any) -> Future[T]:
        with self._lock:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self._at_once, mp_context=get_context("spawn"), initializer=settle_child
                )
            with deaf():
                return self._pool.submit(task, *arguments)

    def close(self) -> None:
        """End the processes, whatever they do."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            _end(pool)


@contextmanager
def one_child() -> Iterator[Executor]:
    """Provide a child for work beside ours; at the end of the block it ends, whatever it does."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=settle_child)
    try:
        with deaf():
            pool.submit(int)  # its process begins here
        yield pool
    finally:
        _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(2)


@contextmanager
def deaf() -> Iterator[None]:
    """Start processes that never hear Ctrl-C: a terminal sends it to all, and the parent decides when they end.

    A child inherits which signals its parent's thread blocks, so it is deaf from its first instruction on, before
    :func:`settle_child` runs.
    """
    resource_tracker.ensure_running()  # its own start would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle_child() -> None:
    """Make this process a child that disturbs nobody and does not outlive its parent; the initializer of pools."""
    from multiprocessing import connection, parent_process

    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)  # nobody is left to take an answer

    threading.Thread(target=follow, name="follow-parent", daemon=True).start()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when we end
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.nice(5)

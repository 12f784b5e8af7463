"""Members as processes of this machine: started, watched, drained, restarted with a back-off."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from balancer.actuators.base import Actuation, ActuationState
from balancer.errors import TargetRefused
from forecaster.topics import GroupId

POLL_S = 0.1
LOG_LIMIT_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How a member of one group is started.

    Parameters
    ----------
    command
        Program and arguments; ``{instance}`` is replaced by the member's number, from 1 on: the lowest that is free.
    environ
        Added to our own environment.
    grace_s
        From SIGTERM to SIGKILL.
    back_off_s, longest_back_off_s
        Wait before the first restart of a member that died, and the most that doubling leads to.
    healthy_after_s
        A member that lived this long starts its back-off anew.
    """

    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0
    back_off_s: float = 0.5
    longest_back_off_s: float = 60.0
    healthy_after_s: float = 30.0


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One member as its supervisor sees it."""

    instance: int
    pid: int | None
    restarts: int
    draining: bool
    last_exit: int | None


@dataclass(slots=True)
class _Worker:
    instance: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    failures: int = 0
    retry_at: float = 0.0
    drain_since: float | None = None
    last_exit: int | None = None


class ProcessActuator:
    """A supervisor for one machine, so that the whole loop runs on a laptop.

    One thread of its own starts and watches everything: on Linux children are told to end when the *thread* that
    started them does, so no caller's thread may start them. Scale-down drains the members that are named (by
    instance number), else the highest numbers: SIGTERM, then SIGKILL after the grace period.

    Parameters
    ----------
    commands
        How each group's members are started.
    logs
        Folder of their output, ``<group>-<instance>.log``; a log that passes 20 MB is renamed to ``.1`` at a restart.
    monotonic
        A clock in seconds.
    """

    def __init__(
        self,
        commands: Mapping[GroupId, WorkerCommand],
        logs: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands, self._logs, self._monotonic = dict(commands), logs, monotonic
        self._wanted: dict[GroupId, int] = {}
        self._workers: dict[GroupId, dict[int, _Worker]] = {g: {} for g in commands}
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closing = False
        logs.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="process-supervisor", daemon=True)
        self._thread.start()

    def current(self, group: GroupId) -> int | None:
        """Return what was asked for last; None before the first time."""
        self._command(group)
        return self._wanted.get(group)

    def scale(self, group: GroupId, replicas: int, now: datetime, *, leaving: tuple[str, ...] = ()) -> Actuation:
        """Ask for so many members; returns at once, the supervisor's thread does the rest."""
        self._command(group)
        if replicas < 0:
            raise TargetRefused(f"{replicas} members cannot be meant")
        with self._lock:
            previous = self._wanted.get(group)
            self._wanted[group] = replicas
            self._mark_leaving(group, replicas, leaving)
        self._wake.set()
        state = ActuationState.UNCHANGED if previous == replicas else ActuationState.PENDING
        return Actuation(group, now, replicas, previous, state, f"{previous or 0} → {replicas} processes")

    def workers(self, group: GroupId) -> tuple[WorkerState, ...]:
        """Return the members, by instance."""
        with self._lock:
            return tuple(
                WorkerState(
                    w.instance, w.process.pid if w.process else None, w.restarts, w.drain_since is not None, w.last_exit
                )
                for _, w in sorted(self._workers[group].items())
            )

    def close(self) -> None:
        """Drain everybody, wait for the grace period, and stop watching."""
        with self._lock:
            self._closing = True
            for group in self._workers:
                self._wanted[group] = 0
                self._mark_leaving(group, 0, ())
        self._wake.set()
        self._thread.join(max((c.grace_s for c in self._commands.values()), default=0) + 5)

    def _command(self, group: GroupId) -> WorkerCommand:
        try:
            return self._commands[group]
        except KeyError:
            raise TargetRefused(f"group {group} has no command; set actuator.command in its settings") from None

    def _mark_leaving(self, group: GroupId, replicas: int, leaving: tuple[str, ...]) -> None:
        staying = [w for w in self._workers[group].values() if w.drain_since is None]
        surplus = len(staying) - replicas
        named = {int(name.split("#")[0]) for name in leaving if name.split("#")[0].isdecimal()}
        order = sorted(staying, key=lambda w: (w.instance not in named, -w.instance))
        for worker in order[: max(surplus, 0)]:
            worker.drain_since = self._monotonic()
            if worker.process is not None:
                _signal(worker.process, signal.SIGTERM)

    def _run(self) -> None:
        while True:
            self._wake.wait(POLL_S)
            self._wake.clear()
            with self._lock:
                for group, workers in self._workers.items():
                    self._supervise(group, workers)
                if self._closing and not any(self._workers.values()):
                    return

    def _supervise(self, group: GroupId, workers: dict[int, _Worker]) -> None:
        command, now = self._commands[group], self._monotonic()
        for worker in list(workers.values()):
            process = worker.process
            if process is not None and process.poll() is not None:
                self._note_exit(worker, command, now)
            if worker.drain_since is not None:
                if worker.process is None:
                    del workers[worker.instance]
                elif now - worker.drain_since > command.grace_s:
                    _signal(worker.process, signal.SIGKILL)
            elif worker.process is None and now >= worker.retry_at:
                self._start(group, worker, command, now)
        if self._closing:
            return
        missing = self._wanted.get(group, 0) - sum(w.drain_since is None for w in workers.values())
        free = (i for i in range(1, len(workers) + max(missing, 0) + 1) if i not in workers)
        for _ in range(missing):
            worker = _Worker(next(free))
            workers[worker.instance] = worker
            self._start(group, worker, command, now)

    def _note_exit(self, worker: _Worker, command: WorkerCommand, now: float) -> None:
        assert worker.process is not None
        worker.last_exit = worker.process.returncode
        worker.process = None
        if worker.drain_since is not None:
            return
        worker.failures = 1 if now - worker.started >= command.healthy_after_s else worker.failures + 1
        worker.restarts += 1
        worker.retry_at = now + min(command.back_off_s * 2 ** (worker.failures - 1), command.longest_back_off_s)

    def _start(self, group: GroupId, worker: _Worker, command: WorkerCommand, now: float) -> None:
        path = self._logs / f"{group.replace('/', '_')}-{worker.instance}.log"
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        arguments = [a.replace("{instance}", str(worker.instance)) for a in command.command]
        environ = os.environ | dict(command.environ) | {"HEADWAY_INSTANCE": str(worker.instance)}
        worker.started = now
        with path.open("ab") as log:
            try:
                worker.process = subprocess.Popen(
                    arguments, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environ,
                    start_new_session=True, preexec_fn=_die_with_parent,
                )  # fmt: skip
            except OSError as exc:
                log.write(f"cannot start {arguments[0]}: {exc.strerror}\n".encode())
                worker.failures += 1
                worker.retry_at = now + min(command.back_off_s * 2 ** (worker.failures - 1), command.longest_back_off_s)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        assert _LIBC is not None
        _LIBC.prctl(pr_set_pdeathsig, signal.SIGTERM)


_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None  # loaded before any fork

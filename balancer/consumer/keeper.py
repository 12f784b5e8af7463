"""Keeps a worker's lease on life: claims, renews, and brings back what is to be done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from balancer.leases.base import (
    GroupReleased,
    Heartbeat,
    LeaseRefused,
    LeaseStore,
    LeaseStoreError,
    LeaseStoreLost,
    Owner,
    ProtocolRefused,
    WorkerProfile,
    WorkerView,
)

log = logging.getLogger("headway.consumer")


@dataclass(frozen=True, slots=True)
class Word:
    """What the store said last, and the mark that stood when it was asked."""

    mark: int
    view: WorkerView


class LeaseKeeper:
    """A thread beside the loop: renewals never wait for a handler.

    A silent store is not a lost lease: ``word`` simply grows old. A *refused* renewal is: ``refused`` says why, and
    nothing brings that life back. A store that may have lost its tail, or that shows an older plan than it did, is
    not obeyed (``holding`` says why).

    ``mark`` counts what the loop changed in the store; a word that was asked for under an older mark may not know of
    the loop's last change.
    """

    def __init__(self, store: LeaseStore, ttl: timedelta, pulse: Callable[[Heartbeat], Heartbeat]) -> None:
        self._store = store
        self._ttl = ttl
        self._pulse = pulse
        self._beat = Heartbeat()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="headway-lease", daemon=True)
        self._owner: Owner | None = None
        self._plan_epoch = 0
        self.word: Word | None = None
        self.mark = 0
        self.refused: str | None = None
        self.holding: str | None = None
        self.deadline = 0.0
        """Monotonic seconds until which the lease certainly holds."""

    @property
    def owner(self) -> Owner:
        """The life that was claimed."""
        if self._owner is None:
            raise LeaseRefused("no instance has been claimed yet")
        return self._owner

    def claim(self, instance: int | None, nonce: str, profile: WorkerProfile, patience_s: float) -> Owner:
        """Begin a life; waits for a predecessor's deadline and for a planner, up to ``patience_s`` seconds.

        Raises
        ------
        InstanceTaken
            If somebody else lives on that instance all the while.
        ProtocolRefused
            If planner and worker speak different versions.
        """
        give_up = time.monotonic() + patience_s
        told = False
        while True:
            began = time.monotonic()
            try:
                self._owner = self._store.claim(instance, nonce, self._ttl, profile)
                self.deadline = began + self._ttl.total_seconds()
                return self._owner
            except (ProtocolRefused, LeaseRefused):
                raise
            except LeaseStoreError as error:
                if time.monotonic() > give_up and not isinstance(error, GroupReleased):
                    raise
                if not told:
                    log.warning("waiting to begin: %s", error)
                    told = True
            if self._stopped.wait(0.1):
                raise LeaseRefused("stopped while waiting for an instance")

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def say(self, **flags: bool) -> None:
        """Raise flags with the next renewal, at once."""
        raised: dict[str, Any] = dict(flags)
        self._beat = replace(self._beat, **raised)
        self._renew()

    def stop(self) -> None:
        """End the thread; the life itself ends with ``leave`` or by its deadline."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def _keep(self) -> None:
        name, third = str(self.owner.instance), self._ttl.total_seconds() / 3
        due = time.monotonic()
        while not self._stopped.is_set() and self.refused is None:
            left = min(0.25, max(0.001, due - time.monotonic()))  # in short waits, so that a stop is quick
            woken = self._store.wait(name, timedelta(seconds=left))
            if woken or time.monotonic() >= due:
                self._renew()
                due = time.monotonic() + third

    def _renew(self) -> None:
        began, mark = time.monotonic(), self.mark
        try:
            view = self._store.renew(self.owner, self._ttl, self._pulse(self._beat))
        except LeaseRefused as refusal:
            self.refused = str(refusal)
        except LeaseStoreLost as lost:
            self._hold(str(lost))
        except LeaseStoreError as error:
            log.debug("renewal unanswered: %s", error)
        else:
            self.deadline = began + self._ttl.total_seconds()
            if view.plan_epoch < self._plan_epoch:
                self._hold(f"store shows plan {view.plan_epoch} after plan {self._plan_epoch}: it went back in time")
                return
            self._plan_epoch = view.plan_epoch
            self.holding = None
            self.word = Word(mark, view)

    def _hold(self, why: str) -> None:
        if self.holding is None:
            log.warning("holding: %s", why)
        self.holding = why
        self.word = None

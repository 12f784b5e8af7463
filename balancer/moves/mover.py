"""The planner's hand: watches deadlines, fences the silent, carries moves through, grants what is free."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Protocol

from balancer.errors import StaleLeader
from balancer.leases.base import GroupView, LeaseStore, LeaseStoreError, MoveRequest, Owner, WorkerState
from balancer.moves.machine import MoveLimits, MoveState, Order, Transfer, advance
from balancer.moves.spreading import drains_for, grants_for_free
from balancer.plans.base import LeaderToken
from forecaster.topics import TopicPartition

log = logging.getLogger("headway.moves")


class Fencer(Protocol):
    """Makes sure that an ended life can commit no more."""

    def fence(self, worker: WorkerState) -> None:
        """Return once it can not; raise anything to be called again later."""
        ...


class Founder(Protocol):
    """Founds the books of a group whose store is new or may have lost its tail."""

    def found(self, store: LeaseStore, token: LeaderToken) -> None:
        """Fence everybody who might be alive, then found; raise anything to be called again later."""
        ...


class Mover:
    """Carries moves through for one group, while its token leads.

    ``step`` is one look and what follows from it; ``run`` calls it at each change, when a worker's deadline passes, and
    at least every ``period``.

    Parameters
    ----------
    store, fencer, founder
        Leases, and what fences and founds on the broker's side.
    holder
        Name of this process; one mover leads a group at a time.
    limits, most_moves
        When a move ends by itself; how many may be on their way at once.
    period
        How often deadlines are looked at.
    """

    def __init__(
        self,
        store: LeaseStore,
        fencer: Fencer,
        founder: Founder,
        holder: str,
        *,
        limits: MoveLimits | None = None,
        most_moves: int = 64,
        period: timedelta = timedelta(milliseconds=200),
        leader_ttl: timedelta = timedelta(seconds=5),
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self._fencer = fencer
        self._founder = founder
        self._holder = f"{holder}.{token_hex(3)}"
        self._limits = limits or MoveLimits()
        self._most_moves = most_moves
        self._period = period
        self._leader_ttl = leader_ttl
        self._clock, self._wall = clock, wall
        self._inherit = False
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="headway-fence")
        self._fences: dict[int, tuple[int, Future[None]]] = {}
        self._waiting: list[Transfer] = []
        self._lock = threading.Lock()
        self._moves: dict[str, Transfer] = {}
        self._led_until = 0.0
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._seen_requests: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.token: LeaderToken | None = None
        self.wanted: dict[TopicPartition, int] = {}
        """What the plan wants: partition → instance; for partitions that become free."""
        self.withheld: Container[TopicPartition] = frozenset()
        """Partitions that stay free, such as lanes whose gate is closed."""
        self.close_gates: Callable[[LeaderToken, GroupView], bool] = lambda token, view: False
        """Called before anything is granted; True if leases were changed (see :mod:`balancer.moves.gates`)."""
        self.on_end: Callable[[Transfer], None] = lambda move: None
        """Called with each move that has ended."""
        self.paused: str | None = None
        """Why nothing is granted or moved at present (a foreign member, say); fences go on."""

    # -- what others ask for ------------------------------------------------------------------------------------
    def move(self, partition: TopicPartition, target: int) -> str:
        """Put a move on its way; return its id. A move of the same partition that is on its way is superseded."""
        made = Transfer(token_hex(6), partition, target, self._clock())
        with self._lock:
            self._waiting.append(made)
        self._woken.set()
        return made.id

    def state_of(self, id: str) -> Transfer | None:
        """Return how a move stands; None if it was never asked for."""
        with self._lock:
            waiting = next((m for m in self._waiting if m.id == id), None)
        return self._moves.get(id) or waiting

    def follow(self, assignment: Mapping[TopicPartition, int], reasons: Iterable[str] = ()) -> int | None:
        """Publish an assignment (partition → instance) as the plan and move what differs from it.

        A partition that is on its way to where the plan wants it goes on. One of which the group has no lease ends
        as ``refused``.

        Returns the plan's epoch; None while this mover does not lead.
        """
        token = self.token
        if token is None:
            return None
        view = self.store.view()
        with self._lock:
            goal = {move.partition: move.target for move in [*self._open(), *self._waiting]}
        for tp, lease in view.leases.items():
            owner = lease.next or lease.owner
            if owner is not None:
                goal.setdefault(tp, owner.instance)
        unheld = {tp for tp, lease in view.leases.items() if tp not in goal}  # granted as they are, without a move
        moves = [
            (tp, target) for tp, target in sorted(assignment.items()) if tp not in unheld and goal.get(tp) != target
        ]
        epoch = self.store.publish(
            token,
            {
                "assignment": {str(tp): target for tp, target in sorted(assignment.items())},
                "moves": [f"{tp} to {target}" for tp, target in moves],
                "reasons": list(reasons),
            },
        )
        self.wanted = dict(assignment)
        for tp, target in moves:
            self.move(tp, target)
        return epoch

    def _open(self) -> list[Transfer]:
        return [move for move in self._moves.values() if not move.is_over]

    # -- one look -----------------------------------------------------------------------------------------------
    def step(self) -> GroupView | None:
        """Look once and do what follows; None while another mover leads or the books are being founded."""
        now = self._clock()
        token = self._lead(now)
        if token is None:
            return None
        if self.store.is_lost():
            log.warning("books of %s are lost or new: founding", self.store.group)
            self._fences.clear()
            self._founder.found(self.store, token)
        if self._inherit:
            self._take_over(now)
        view = self.store.view()
        changed = self._fence_silent(token, view)
        changed |= self._end_fences(token)
        if changed:
            view = self.store.view()
        if self.close_gates(token, view):
            view = self.store.view()
        self._accept(view, now)
        if view.released:
            self._empty(token, view)
            return view
        if self.paused is None:
            self._drain(view)
        self._advance(token, view, now)
        if self.paused is None:
            for tp, instance in grants_for_free(view, self.wanted, self.withheld):
                self.store.grant(token, tp, instance)
        return view

    def _lead(self, now: float) -> LeaderToken | None:
        if self.token is None or now > self._led_until:
            token = self.store.lead(self._holder, self._leader_ttl)
            if token is not None and token != self.token:
                log.info("%s leads %s with token %d", self._holder, self.store.group, token.number)
                self._inherit = True
            self.token = token
            self._led_until = now + self._leader_ttl.total_seconds() / 3
        return self.token

    def _fence_silent(self, token: LeaderToken, view: GroupView) -> bool:
        changed = False
        for instance, worker in view.workers.items():
            if instance in self._fences:
                continue
            if worker.live:
                earlier = any(_is_earlier(lease.owner, worker) for lease in view.leases.values())
                if earlier and worker.initialised:
                    freed = self.store.supersede(token, instance)
                    log.info("%s has begun anew: %d partitions of its earlier life are free", worker.owner, len(freed))
                    changed |= bool(freed)
                if any(_is_earlier(lease.next, worker) for lease in view.leases.values()):
                    self.store.begin_fence(token, instance)  # takes grants to its earlier life back, no more
                    changed = True
                continue
            concerned = any(
                owner is not None and owner.instance == instance
                for lease in view.leases.values()
                for owner in (lease.owner, lease.next)
            )
            if not concerned:
                continue
            number, fenced = self.store.begin_fence(token, instance)
            changed = True
            if fenced:
                log.warning("%s is silent: fencing it off %d partitions", worker.owner, len(fenced))
                self._fences[instance] = (number, self._pool.submit(self._fencer.fence, worker))
                self._fences[instance][1].add_done_callback(lambda _: self.wake())
        return changed

    def wake(self) -> None:
        """Look again at once; safe from any thread."""
        self._woken.set()

    def _end_fences(self, token: LeaderToken) -> bool:
        changed = False
        for instance, (number, future) in list(self._fences.items()):
            if not future.done():
                continue
            del self._fences[instance]
            error = future.exception()
            if error is not None:
                log.warning("fence of instance %d did not return: %s; again", instance, error)
                continue
            freed = self.store.end_fence(token, instance, number)
            log.info("instance %d is fenced: %d partitions are free", instance, len(freed))
            changed = True
        return changed

    def _accept(self, view: GroupView, now: float) -> None:
        """Take in moves asked for here and through the store; a later one of a partition supersedes the earlier."""
        with self._lock:
            asked_here = list(self._waiting)
        waiting = list(asked_here)
        for request in view.requests.values():
            if request.state == MoveState.REQUESTED.value and request.id not in self._seen_requests:
                self._seen_requests.add(request.id)
                waiting.append(Transfer(request.id, request.partition, request.target, now))
        for made in waiting:
            for other in self._open():
                if other.partition == made.partition:
                    self._settle(replace(other, state=MoveState.SUPERSEDED, since=now, detail=f"by move {made.id}"))
            self._begin(made, view)
        with self._lock:  # only now, so that no look finds a move in neither place
            self._waiting = self._waiting[len(asked_here) :]

    def _begin(self, made: Transfer, view: GroupView) -> None:
        lease = view.leases.get(made.partition)
        owner = lease.owner if lease is not None else None
        at = self._wall().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._moves[made.id] = replace(made, source=None if owner is None else owner.instance, at=at)

    def _take_over(self, now: float) -> None:
        """Go on with moves that the leader before us left under way: what was granted takes place without anybody."""
        for row in self.store.moves():
            if not row.is_over and row.id not in self._moves:
                state = MoveState(row.state)
                self._moves[row.id] = Transfer(
                    row.id, row.partition, row.target, now, state, now, row.detail, row.epoch, row.source, row.at
                )
        self._inherit = False

    def _empty(self, token: LeaderToken, view: GroupView) -> None:
        """Drain every worker of a group that is given back; each gives its partitions up by itself."""
        for instance, worker in view.workers.items():
            if worker.live and not worker.draining:
                self.store.drain(token, instance)

    def _drain(self, view: GroupView) -> None:
        on_their_way = {m.partition for m in self._open()}
        for tp, target in drains_for(view):
            if tp not in on_their_way:
                self._begin(Transfer(token_hex(6), tp, target, self._clock()), view)

    def _advance(self, token: LeaderToken, view: GroupView, now: float) -> None:
        under_way = self._open()
        going = sum(m.state is not MoveState.REQUESTED for m in under_way)
        for move in under_way:
            waits = going >= self._most_moves or self.paused is not None or move.partition in self.withheld
            if move.state is MoveState.REQUESTED and waits:
                continue
            after, order = advance(move, view, now, self._limits)
            if order is Order.GRANT and not self.store.grant(token, move.partition, move.target):
                continue  # the group has changed since the look; look again
            if order is Order.WITHDRAW:
                self.store.withdraw(token, move.partition)
            if move.state is MoveState.REQUESTED and after.state is MoveState.RELEASING:
                going += 1
                self.wanted[move.partition] = move.target
            if after != move:
                self._settle(after)

    def _settle(self, move: Transfer) -> None:
        """Keep where a move stands: here, and in the store for others to see and a next leader to go on from."""
        self._moves[move.id] = move
        if self.token is not None:
            self.store.settle(self.token, as_record(move, self._clock()))
        if not move.is_over:
            return
        log.info("move of %s to %d: %s %s", move.partition, move.target, move.state.value, move.detail)
        self.on_end(move)
        if len(self._moves) > 2000:
            for old in [m.id for m in self._moves.values() if m.is_over][:1000]:
                del self._moves[old]

    # -- a thread of its own ------------------------------------------------------------------------------------
    def run(self) -> None:
        """Step at each change and at least every period, until ``stop``; errors are logged, and tried again."""
        listener = threading.Thread(target=self._listen, name="headway-mover-ear", daemon=True)
        listener.start()
        self._threads = [threading.current_thread(), listener]
        while not self._stopped.is_set():
            view = None
            try:
                view = self.step()
            except StaleLeader as stale:
                log.warning("%s", stale)
                self.token = None
            except LeaseStoreError as error:
                log.warning("lease store: %s", error)
                self._woken.wait(0.1)
            except Exception:
                log.exception("a step of the mover failed; it is tried again")
            self._woken.wait(self.wait_s(view))
            self._woken.clear()

    def wait_s(self, view: GroupView | None) -> float:
        """Return how long to wait after a look, if nothing wakes us: a period, or until a worker's deadline passes."""
        lives = [worker.expires_in for worker in view.workers.values() if worker.live] if view is not None else []
        soonest = min([*lives, self._period]) + timedelta(milliseconds=5)
        return min(self._period, soonest).total_seconds()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            if self.store.wait("planner", timedelta(seconds=0.5)):
                self._woken.set()

    def start(self) -> threading.Thread:
        """Run in a thread of its own."""
        thread = threading.Thread(target=self.run, name="headway-mover", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End ``run``, wait for it, and give the lead back."""
        self._stopped.set()
        self._woken.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(2)
        if self.token is not None:
            try:
                self.store.resign(self.token)
            except (LeaseStoreError, StaleLeader) as error:
                log.info("could not resign: %s", error)
        self._pool.shutdown(wait=False, cancel_futures=True)


def as_record(move: Transfer, now: float) -> MoveRequest:
    """Return a move as the store keeps it; its duration once it has ended."""
    seconds = round(move.seconds(now), 4) if move.is_over else None
    return MoveRequest(
        move.id, move.partition, move.target, move.state.value, move.detail, seconds, move.epoch, move.source, move.at
    )


def _is_earlier(owner: Owner | None, worker: WorkerState) -> bool:
    return owner is not None and owner.instance == worker.owner.instance and owner.number < worker.owner.number

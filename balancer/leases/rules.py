"""The rules of leases as pure code: one group's books, changed by named steps at a given instant.

:class:`Books` is what :mod:`balancer.leases.memory` keeps under a lock and what the Lua script of
:mod:`balancer.leases.redis` does inside the server. Instants are milliseconds of the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from balancer.errors import StaleLeader
from balancer.leases.base import (
    KEPT_ANSWERS,
    KEPT_MOVES,
    GroupReleased,
    GroupView,
    Heartbeat,
    InstanceTaken,
    LeaderToken,
    Lease,
    LeaseRefused,
    LeaseState,
    LeaseStoreLost,
    MoveRequest,
    Owner,
    ProtocolRefused,
    StartRule,
    WorkerProfile,
    WorkerState,
    WorkerView,
)
from forecaster.topics import GroupId, TopicPartition


@dataclass(slots=True)
class Life:
    """The current life of one instance; it stays on the books, ended, until the next one begins."""

    owner: Owner
    deadline: int
    profile: WorkerProfile
    initialised: bool = False
    ready: bool = False
    draining: bool = False
    heartbeat: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Books:
    """Everything that is known of one group's leases.

    Every step checks first and changes after; a refused step changes nothing. ``woken`` collects the names of those
    for whom something changed, to be emptied by whoever tells them.
    """

    group: GroupId
    founded: bool = False
    version: int = 0
    plan_epoch: int = 0
    plan: Mapping[str, Any] | None = None
    floor: int = 0
    protocols: tuple[int, int] = (1, 1)
    leader: LeaderToken | None = None
    leader_number: int = 0
    leader_deadline: int = 0
    lives: dict[int, Life] = field(default_factory=dict)
    leases: dict[TopicPartition, Lease] = field(default_factory=dict)
    requests: dict[str, MoveRequest] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    moves: dict[str, MoveRequest] = field(default_factory=dict)
    released: bool = False
    woken: set[str] = field(default_factory=set)

    # -- conditions ---------------------------------------------------------------------------------------------
    def _must_be_founded(self) -> None:
        if not self.founded:
            raise LeaseStoreLost(f"leases of {self.group} are not founded: nobody takes anything until a planner leads")

    def _must_lead(self, token: LeaderToken, now: int) -> None:
        if self.leader is None or (self.leader.number, self.leader.nonce) != (token.number, token.nonce):
            raise StaleLeader(f"token {token.number} of {token.holder} does not lead {self.group} any more")
        if self.leader_deadline <= now:
            raise StaleLeader(f"token {token.number} of {token.holder} has run out")

    def _live(self, owner: Owner | None, now: int) -> Life | None:
        life = self.lives.get(owner.instance) if owner is not None else None
        return life if life is not None and life.owner == owner and life.deadline > now else None

    def _must_live(self, owner: Owner, now: int) -> Life:
        life = self.lives.get(owner.instance)
        if life is None or life.owner != owner:
            raise LeaseRefused(f"{owner} is superseded by {life.owner if life else 'a new founding'}")
        if life.deadline <= now:
            raise LeaseRefused(f"{owner} expired {now - life.deadline} ms ago; an expired lease never revives")
        return life

    def _change(self, lease: Lease, *names: Owner | None) -> None:
        self.leases[lease.partition] = lease
        self._touch(*names)

    def _touch(self, *names: Owner | None) -> None:
        self.version += 1
        self.woken.add("planner")
        self.woken.update(str(name.instance) for name in names if name is not None)

    # -- worker side --------------------------------------------------------------------------------------------
    def claim(self, now: int, instance: int | None, nonce: str, ttl: int, profile: WorkerProfile) -> Owner:
        """Begin a life."""
        self._must_be_founded()
        if self.released:
            raise GroupReleased(f"{self.group} is given back to its ordinary protocol; headway adopt takes it again")
        low, high = self.protocols
        if not low <= profile.protocol <= high:
            raise ProtocolRefused(f"worker speaks protocol {profile.protocol}, planner {low} to {high}")
        fenced = {
            lease.owner.instance for lease in self.leases.values() if lease.state is LeaseState.FENCING and lease.owner
        }
        if instance is None:
            instance = 1
            while instance in fenced or ((seen := self.lives.get(instance)) is not None and seen.deadline > now):
                instance += 1
        before = self.lives.get(instance)
        if before is not None and before.deadline > now:
            raise InstanceTaken(f"instance {instance} is taken by {before.owner} for {before.deadline - now} ms yet")
        if instance in fenced:  # the fence would reach the new life as well: both have one transactional id
            raise InstanceTaken(f"instance {instance} is taken until its earlier life is fenced")
        owner = Owner(instance, before.owner.number + 1 if before else 1, nonce)
        self.lives[instance] = Life(owner, now + ttl, profile)
        self._touch()
        return owner

    def renew(self, now: int, owner: Owner, ttl: int, heartbeat: Heartbeat) -> WorkerView:
        """Put a live worker's deadline off and show what concerns it."""
        self._must_be_founded()
        life = self._must_live(owner, now)
        flags = (life.initialised, life.ready, life.draining)
        life.deadline = now + ttl
        life.initialised |= heartbeat.initialised
        life.ready |= heartbeat.ready
        life.draining |= heartbeat.draining
        life.heartbeat = asdict(heartbeat)
        if flags != (life.initialised, life.ready, life.draining):
            self._touch()
        mine = {tp: lease for tp, lease in self.leases.items() if owner in (lease.owner, lease.next)}
        return WorkerView(self.plan_epoch, life.draining, mine, self.released)

    def take(self, now: int, owner: Owner, partition: TopicPartition) -> Lease:
        """Turn a grant into a held lease."""
        self._must_be_founded()
        self._must_live(owner, now)
        lease = self.leases.get(partition)
        if lease is None or lease.state is not LeaseState.FREE or lease.next != owner:
            raise LeaseRefused(f"{partition} is not granted to {owner}")
        epoch = max(lease.epoch, self.floor) + 1
        taken = replace(lease, state=LeaseState.HELD, owner=owner, next=None, epoch=epoch)
        self._change(replace(taken, offset=None, leader_epoch=None))
        return taken

    def release(
        self,
        now: int,
        owner: Owner,
        partition: TopicPartition,
        epoch: int,
        offset: int | None,
        leader_epoch: int | None,
    ) -> None:
        """Give a held lease up; an expired owner may still do that, a fenced one may not."""
        self._must_be_founded()
        lease = self.leases.get(partition)
        if lease is None or (lease.state, lease.owner, lease.epoch) != (LeaseState.HELD, owner, epoch):
            raise LeaseRefused(f"{partition} is not held by {owner} at epoch {epoch}")
        grant = lease.next if self._may_receive(lease.next, now) else None
        if lease.void:
            offset = leader_epoch = None
        start = StartRule.BEGINNING if lease.void else lease.start
        self._change(
            replace(
                lease,
                state=LeaseState.FREE,
                owner=None,
                next=grant,
                offset=offset,
                leader_epoch=leader_epoch,
                void=False,
                start=start,
            ),
            grant,
        )

    def leave(self, now: int, owner: Owner) -> None:
        """End a life in order."""
        self._must_be_founded()
        life = self._must_live(owner, now)
        held = [tp for tp, lease in self.leases.items() if lease.owner == owner and lease.state is LeaseState.HELD]
        if held:
            raise LeaseRefused(f"{owner} still holds {len(held)} partitions, {min(held)} among them")
        life.deadline = 0
        life.ready = False
        for tp, lease in self.leases.items():
            if lease.next == owner:
                self.leases[tp] = replace(lease, next=None)
        self._touch()

    def _may_receive(self, owner: Owner | None, now: int) -> bool:
        life = self._live(owner, now)
        return life is not None and life.initialised and life.ready and not life.draining

    # -- planner side -------------------------------------------------------------------------------------------
    def lead(self, now: int, holder: str, nonce: str, ttl: int) -> LeaderToken | None:
        """Take or renew the right to change leases."""
        if self.leader is not None and self.leader.nonce == nonce and self.leader_deadline > now:
            self.leader_deadline = now + ttl
            return self.leader
        if self.leader is not None and self.leader_deadline > now:
            return None
        self.leader_number += 1
        self.leader = LeaderToken(self.group, self.leader_number, nonce, holder)
        self.leader_deadline = now + ttl
        return self.leader

    def resign(self, now: int, token: LeaderToken) -> None:
        """Give that right back."""
        if self.leader is not None and (self.leader.number, self.leader.nonce) == (token.number, token.nonce):
            self.leader_deadline = 0

    def view(self, now: int) -> GroupView:
        """Show everything."""
        self._must_be_founded()
        workers = {
            i: WorkerState(
                life.owner,
                life.deadline > now,
                timedelta(milliseconds=life.deadline - now),
                life.initialised,
                life.ready,
                life.draining,
                life.profile,
                dict(life.heartbeat),
            )
            for i, life in self.lives.items()
        }
        return GroupView(self.version, self.plan_epoch, workers, dict(self.leases), dict(self.requests), self.released)

    def found(self, now: int, token: LeaderToken, floor: int, plan_epoch: int, protocols: tuple[int, int]) -> None:
        """Start the books anew; epochs and counters never go back."""
        self._must_lead(token, now)
        self.floor = max(self.floor, floor, *(lease.epoch for lease in self.leases.values()), 0)
        self.plan_epoch = max(self.plan_epoch, plan_epoch)
        self.protocols = protocols
        self.leases.clear()
        self.lives.clear()
        self.founded = True
        self._touch()

    def add(
        self, now: int, token: LeaderToken, partitions: Iterable[TopicPartition], start: StartRule, topic_id: str | None
    ) -> int:
        """Create FREE leases where there are none."""
        self._must_be_founded()
        self._must_lead(token, now)
        new = [tp for tp in dict.fromkeys(partitions) if tp not in self.leases]
        for tp in new:
            self._change(Lease(tp, LeaseState.FREE, None, self.floor, start=start, topic_id=topic_id))
        return len(new)

    def drop(self, now: int, token: LeaderToken, partitions: Iterable[TopicPartition]) -> int:
        """Forget leases; what epochs they had is remembered in the floor."""
        self._must_be_founded()
        self._must_lead(token, now)
        gone = [self.leases.pop(tp) for tp in dict.fromkeys(partitions) if tp in self.leases]
        for lease in gone:
            self.floor = max(self.floor, lease.epoch)
            self._touch(lease.owner, lease.next)
        return len(gone)

    def void(self, now: int, token: LeaderToken, partitions: Iterable[TopicPartition], topic_id: str) -> int:
        """Mark leases whose topic was created again."""
        self._must_be_founded()
        self._must_lead(token, now)
        known = [self.leases[tp] for tp in dict.fromkeys(partitions) if tp in self.leases]
        for lease in known:
            held = lease.state is LeaseState.HELD
            marked = replace(lease, topic_id=topic_id, start=StartRule.BEGINNING, offset=None, leader_epoch=None)
            self._change(replace(marked, void=held), lease.owner)
        return len(known)

    def grant(self, now: int, token: LeaderToken, partition: TopicPartition, instance: int) -> bool:
        """Write the next owner on a lease."""
        self._must_be_founded()
        self._must_lead(token, now)
        lease, life = self.leases.get(partition), self.lives.get(instance)
        if lease is None or life is None or self.released or not self._may_receive(life.owner, now):
            return False
        if lease.state is LeaseState.FENCING or life.owner == lease.owner:
            return False
        self._change(replace(lease, next=life.owner), lease.owner, life.owner, lease.next)
        return True

    def withdraw(self, now: int, token: LeaderToken, partition: TopicPartition) -> bool:
        """Take a grant back."""
        self._must_be_founded()
        self._must_lead(token, now)
        lease = self.leases.get(partition)
        if lease is None or lease.next is None:
            return False
        self._change(replace(lease, next=None), lease.owner, lease.next)
        return True

    def drain(self, now: int, token: LeaderToken, instance: int) -> bool:
        """Ask a worker to drain."""
        self._must_be_founded()
        self._must_lead(token, now)
        life = self.lives.get(instance)
        if life is None or life.deadline <= now:
            return False
        life.draining = True
        self._touch(life.owner)
        return True

    def begin_fence(self, now: int, token: LeaderToken, instance: int) -> tuple[int, tuple[TopicPartition, ...]]:
        """Put leases of ended lives into FENCING, and take grants to ended lives back."""
        self._must_be_founded()
        self._must_lead(token, now)
        life = self.lives.get(instance)
        later_life = life is not None and life.deadline > now
        number, fenced = 0, []
        for tp, lease in list(self.leases.items()):
            if lease.next is not None and lease.next.instance == instance and self._live(lease.next, now) is None:
                lease = replace(lease, next=None)
                self._change(lease, lease.owner)
            owner = lease.owner
            if owner is None or owner.instance != instance or later_life:
                continue  # a live later life fences by itself when it initialises: see supersede
            if lease.state is LeaseState.HELD:
                self._change(replace(lease, state=LeaseState.FENCING, next=None))
            number = max(number, owner.number)
            fenced.append(tp)
        return number, tuple(sorted(fenced))

    def end_fence(self, now: int, token: LeaderToken, instance: int, number: int) -> tuple[TopicPartition, ...]:
        """Free what was fenced, all at once."""
        self._must_be_founded()
        self._must_lead(token, now)
        return self._free(
            lease
            for lease in self.leases.values()
            if lease.state is LeaseState.FENCING
            and lease.owner is not None
            and lease.owner.instance == instance
            and lease.owner.number <= number
        )

    def supersede(self, now: int, token: LeaderToken, instance: int) -> tuple[TopicPartition, ...]:
        """Free leases of earlier lives of an instance whose current life has initialised."""
        self._must_be_founded()
        self._must_lead(token, now)
        life = self.lives.get(instance)
        if life is None or not life.initialised:
            return ()
        return self._free(
            lease
            for lease in self.leases.values()
            if lease.owner is not None
            and lease.state is not LeaseState.FREE
            and lease.owner.instance == instance
            and lease.owner.number < life.owner.number
        )

    def _free(self, leases: Iterable[Lease]) -> tuple[TopicPartition, ...]:
        freed = []
        for lease in list(leases):
            start = StartRule.BEGINNING if lease.void else lease.start
            self._change(
                replace(
                    lease,
                    state=LeaseState.FREE,
                    owner=None,
                    next=None,
                    offset=None,
                    leader_epoch=None,
                    void=False,
                    start=start,
                )
            )
            freed.append(lease.partition)
        return tuple(sorted(freed))

    def publish(self, now: int, token: LeaderToken, plan: Mapping[str, Any]) -> int:
        """Replace the readable plan."""
        self._must_be_founded()
        self._must_lead(token, now)
        self.plan_epoch += 1
        self.plan = dict(plan)
        return self.plan_epoch

    def request(self, request: MoveRequest) -> None:
        """Ask whoever leads for a move."""
        self._must_be_founded()
        self.requests[request.id] = request
        self._touch()

    def set_released(self, released: bool) -> None:
        """Give the group back to its ordinary protocol, or take it again."""
        self._must_be_founded()
        self.released = released
        self._touch()

    def settle(self, now: int, token: LeaderToken, request: MoveRequest) -> None:
        """Record how a move stands."""
        self._must_be_founded()
        self._must_lead(token, now)
        self.moves[request.id] = request
        if len(self.moves) > KEPT_MOVES:
            del self.moves[next(iter(self.moves))]
        if request.id not in self.requests:
            return
        self.requests[request.id] = request
        if request.is_over:
            self.answered.append(request.id)
            if len(self.answered) > KEPT_ANSWERS:
                self.requests.pop(self.answered.pop(0), None)

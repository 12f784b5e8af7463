"""Leases in Redis or Valkey: one Lua script, one connection that knows which server it speaks to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from secrets import token_hex
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from balancer.errors import StaleLeader
from balancer.leases.base import (
    KEPT_ANSWERS,
    KEPT_MOVES,
    PROTOCOL_VERSION,
    GroupReleased,
    GroupView,
    Heartbeat,
    InstanceTaken,
    Lease,
    LeaseRefused,
    LeaseState,
    LeaseStoreError,
    LeaseStoreLost,
    LeaseStoreUnavailable,
    MoveRequest,
    Owner,
    ProtocolRefused,
    StartRule,
    WorkerProfile,
    WorkerState,
    WorkerView,
)
from balancer.leases.cluster import ELSEWHERE, Seat
from balancer.leases.scripts import LEASES_LUA
from balancer.plans.base import LeaderToken
from forecaster.topics import GroupId, TopicPartition

REFUSALS: dict[str, type[Exception]] = {
    "LOST": LeaseStoreLost,
    "STALE": StaleLeader,
    "TAKEN": InstanceTaken,
    "PROTOCOL": ProtocolRefused,
    "RELEASED": GroupReleased,
    "REFUSED": LeaseRefused,
}


AWAY: tuple[type[Exception], ...] = (redis.ConnectionError, redis.TimeoutError, OSError, *ELSEWHERE)


class _OtherServer(redis.ConnectionError):
    """A reconnect ended at another server than before; whatever was being sent must not run there."""


# A newer version may say more than we know of.
_REQUEST_FIELDS = frozenset(field.name for field in fields(MoveRequest))
_PROFILE_FIELDS = frozenset(field.name for field in fields(WorkerProfile))


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _fields(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _owner(text: str | None) -> Owner | None:
    return Owner.parse(text) if text else None


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _lease(tp: str, flat: list[str]) -> Lease:
    f = _fields(flat)
    return Lease(
        partition=TopicPartition.parse(tp),
        state=LeaseState(f["state"]),
        owner=_owner(f.get("owner")),
        epoch=int(f["epoch"]),
        next=_owner(f.get("next")),
        offset=_number(f.get("offset")),
        leader_epoch=_number(f.get("leader_epoch")),
        topic_id=f.get("topic_id") or None,
        start=StartRule(f["start"]),
        void=f.get("void") == "1",
    )


def _leases(flat: list[Any]) -> dict[TopicPartition, Lease]:
    found = (_lease(tp, fields) for tp, fields in zip(flat[::2], flat[1::2], strict=True))
    return {lease.partition: lease for lease in found}


def _worker(flat: list[str], now: int) -> WorkerState:
    f = _fields(flat)
    left = int(f["deadline"]) - now
    return WorkerState(
        owner=Owner.parse(f["owner"]),
        live=left > 0,
        expires_in=timedelta(milliseconds=left),
        initialised=f.get("initialised") == "1",
        ready=f.get("ready") == "1",
        draining=f.get("draining") == "1",
        profile=WorkerProfile(**{k: v for k, v in json.loads(f["profile"]).items() if k in _PROFILE_FIELDS}),
        heartbeat=json.loads(f.get("heartbeat") or "{}"),
    )


def _request(text: str) -> MoveRequest:
    facts = {name: value for name, value in json.loads(text).items() if name in _REQUEST_FIELDS}
    return MoveRequest(**{**facts, "partition": TopicPartition.parse(facts["partition"])})


def _request_json(request: MoveRequest) -> str:
    return json.dumps({**asdict(request), "partition": str(request.partition)})


class RedisLeaseStore:
    """One group's leases in Redis ≥ 6.2 or Valkey, behind any ``redis://``, ``rediss://`` or ``unix://`` address.

    Of a Redis Cluster any node may be named; the leases of a group are on one of them.

    Safe to use from several threads. No call is repeated behind the caller's back: after a reconnect the first call
    compares the server's run id and replication id with those of the founding before anything runs on it.

    Parameters
    ----------
    url
        Address of the server.
    cluster, group
        Kafka cluster and consumer group; together they are the hash tag of every key.
    timeout
        How long a call may take before it counts as unavailable.
    """

    def __init__(
        self, url: str, cluster: str, group: GroupId, timeout: timedelta = timedelta(seconds=1), **options: Any
    ) -> None:
        self._group = group
        self._prefix = f"hw:{{{cluster}:{group}}}:"
        self._nonce = token_hex(4)
        self._server = ""
        self._lock = threading.RLock()
        self._timeout = timeout.total_seconds()
        self._url = url
        self._options = options
        quick = {"socket_timeout": self._timeout, "socket_connect_timeout": self._timeout}
        self._seat = Seat(url, self._prefix + "group", **quick, **options)
        self._home: redis.Redis | None = None
        self._sha = ""
        self._waiters: dict[str, redis.client.PubSub] = {}

    @property
    def group(self) -> GroupId:
        """The group whose leases these are."""
        return self._group

    @property
    def _client(self) -> redis.Redis:
        """The connection to the server that keeps the leases: of a cluster, to that node."""
        if self._home is None:
            self._home = self._connect(self._greet)
        return self._home

    def _leave_home(self) -> None:
        """Look for the server anew before the next call."""
        home, self._home = self._home, None
        if home is not None:
            home.close()

    def _connect(self, hook: Any = None) -> redis.Redis:
        return redis.Redis.from_url(
            self._seat.find(),
            decode_responses=True,
            single_connection_client=False,
            max_connections=2,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **({"redis_connect_func": hook} if hook else {}),
            **self._options,
        )

    def _greet(self, connection: Any) -> None:
        """Learn who answers on a new connection, before any script runs on it."""
        connection.on_connect()
        identity = []
        for section, field in (("server", "run_id"), ("replication", "master_replid")):
            connection.send_command("INFO", section)
            text = connection.read_response()
            lines = dict(line.split(":", 1) for line in str(text).splitlines() if ":" in line)
            identity.append(lines.get(field, ""))
        before, self._server = self._server, ":".join(identity)
        if before and before != self._server:
            raise _OtherServer(f"{self._url} is another server life than before")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except AWAY as error:
            if not isinstance(error, _OtherServer):
                self._leave_home()
            raise LeaseStoreUnavailable(f"lease store {self._url} does not answer: {error}") from error
        except redis.RedisError as error:
            raise LeaseStoreError(f"lease store {self._url} refuses: {error}") from error

    def _run(self, step: str, *arguments: object) -> list[Any]:
        with self._lock, self._translated():
            if not self._server:
                self._client.ping()
            args = [step, self._server, *map(str, arguments)]
            key = self._prefix + "group"
            try:
                if not self._sha:
                    self._sha = str(self._client.script_load(LEASES_LUA))
                answer = self._client.evalsha(self._sha, 1, key, *args)
            except redis.exceptions.NoScriptError:
                self._sha = ""
                answer = self._client.eval(LEASES_LUA, 1, key, *args)
        answer = cast("list[Any]", answer)
        if answer[0] in REFUSALS:
            what = (
                answer[1]
                if len(answer) > 1
                else f"{step} of {self._group}: "
                + (
                    "its books are new, or the store lost their tail; a planner founds them before anybody claims"
                    if answer[0] == "LOST"
                    else "somebody with a newer token leads now"
                )
            )
            raise REFUSALS[answer[0]](what)
        return answer

    def _lead_run(self, step: str, token: LeaderToken, *arguments: object) -> list[Any]:
        return self._run(step, token.number, token.nonce, *arguments)

    # -- worker side --------------------------------------------------------------------------------------------
    def claim(self, instance: int | None, nonce: str, ttl: timedelta, profile: WorkerProfile) -> Owner:
        """See :meth:`balancer.leases.base.LeaseStore.claim`."""
        wanted = "" if instance is None else instance
        answer = self._run("claim", wanted, nonce, _ms(ttl), json.dumps(asdict(profile)), profile.protocol)
        return Owner.parse(answer[1])

    def renew(self, owner: Owner, ttl: timedelta, heartbeat: Heartbeat) -> WorkerView:
        """See :meth:`balancer.leases.base.LeaseStore.renew`."""
        flags = (int(heartbeat.initialised), int(heartbeat.ready), int(heartbeat.draining))
        answer = self._run("renew", owner, _ms(ttl), json.dumps(asdict(heartbeat)), *flags)
        return WorkerView(int(answer[1]), bool(answer[2]), _leases(answer[3]), bool(answer[4]))

    def take(self, owner: Owner, partition: TopicPartition) -> Lease:
        """See :meth:`balancer.leases.base.LeaseStore.take`."""
        _, flat, offset, leader_epoch = self._run("take", owner, partition)
        handed = ["offset", offset, "leader_epoch", leader_epoch]
        return _lease(str(partition), [*flat, *handed])

    def release(
        self,
        owner: Owner,
        partition: TopicPartition,
        epoch: int,
        offset: int | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.release`."""
        known = ["" if value is None else value for value in (offset, leader_epoch)]
        self._run("release", owner, partition, epoch, *known)

    def leave(self, owner: Owner) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.leave`."""
        self._run("leave", owner)

    def wait(self, name: str, timeout: timedelta) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.wait`."""
        try:
            waiter = self._waiters.get(name)
            if waiter is None:
                waiter = self._connect().pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
                waiter.subscribe(f"{self._prefix}wake:{name}")
                self._waiters[name] = waiter
                return True  # what changed before we listened is not known
            woken = waiter.get_message(timeout=timeout.total_seconds()) is not None
            while waiter.get_message(timeout=0) is not None:
                woken = True
            return woken
        except (redis.RedisError, OSError):
            broken = self._waiters.pop(name, None)
            if broken is not None:
                with contextlib.suppress(redis.RedisError, OSError):
                    broken.close()
            threading.Event().wait(min(timeout.total_seconds(), 0.1))
            return False

    # -- planner side -------------------------------------------------------------------------------------------
    def lead(self, holder: str, ttl: timedelta) -> LeaderToken | None:
        """See :meth:`balancer.leases.base.LeaseStore.lead`."""
        nonce = f"{holder}.{self._nonce}"
        answer = self._run("lead", holder, nonce, _ms(ttl))
        return LeaderToken(self._group, int(answer[1]), nonce, holder) if answer[0] == "OK" else None

    def resign(self, token: LeaderToken) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.resign`."""
        self._lead_run("resign", token)

    def view(self) -> GroupView:
        """See :meth:`balancer.leases.base.LeaseStore.view`."""
        _, now, version, plan_epoch, workers, leases, requests, released = self._run("view")
        states = [_worker(flat, int(now)) for flat in workers]
        return GroupView(
            int(version),
            int(plan_epoch),
            {state.owner.instance: state for state in states},
            _leases(leases),
            {key: _request(text) for key, text in _fields(requests).items()},
            bool(released),
        )

    def is_lost(self) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.is_lost`."""
        return bool(self._run("lost")[1])

    def found(
        self,
        token: LeaderToken,
        *,
        epoch_floor: int,
        plan_epoch: int = 0,
        protocols: tuple[int, int] = (PROTOCOL_VERSION, PROTOCOL_VERSION),
    ) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.found`."""
        self._lead_run("found", token, epoch_floor, plan_epoch, *protocols)

    def add(
        self, token: LeaderToken, partitions: Iterable[TopicPartition], start: StartRule, topic_id: str | None = None
    ) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.add`."""
        return int(self._lead_run("add", token, start, topic_id or "", *partitions)[1])

    def drop(self, token: LeaderToken, partitions: Iterable[TopicPartition]) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.drop`."""
        return int(self._lead_run("drop", token, *partitions)[1])

    def void(self, token: LeaderToken, partitions: Iterable[TopicPartition], topic_id: str) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.void`."""
        return int(self._lead_run("void", token, topic_id, *partitions)[1])

    def grant(self, token: LeaderToken, partition: TopicPartition, instance: int) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.grant`."""
        return bool(self._lead_run("grant", token, partition, instance)[0] == "OK")

    def withdraw(self, token: LeaderToken, partition: TopicPartition) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.withdraw`."""
        return bool(self._lead_run("withdraw", token, partition)[0] == "OK")

    def drain(self, token: LeaderToken, instance: int) -> bool:
        """See :meth:`balancer.leases.base.LeaseStore.drain`."""
        return bool(self._lead_run("drain", token, instance)[0] == "OK")

    def begin_fence(self, token: LeaderToken, instance: int) -> tuple[int, tuple[TopicPartition, ...]]:
        """See :meth:`balancer.leases.base.LeaseStore.begin_fence`."""
        _, number, partitions = self._lead_run("begin_fence", token, instance)
        return int(number), tuple(sorted(map(TopicPartition.parse, partitions)))

    def end_fence(self, token: LeaderToken, instance: int, number: int) -> tuple[TopicPartition, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.end_fence`."""
        return tuple(sorted(map(TopicPartition.parse, self._lead_run("end_fence", token, instance, number)[1])))

    def supersede(self, token: LeaderToken, instance: int) -> tuple[TopicPartition, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.supersede`."""
        return tuple(sorted(map(TopicPartition.parse, self._lead_run("supersede", token, instance)[1])))

    def publish(self, token: LeaderToken, plan: Mapping[str, Any]) -> int:
        """See :meth:`balancer.leases.base.LeaseStore.publish`."""
        return int(self._lead_run("publish", token, json.dumps(plan))[1])

    def plan(self) -> tuple[int, Mapping[str, Any]] | None:
        """See :meth:`balancer.leases.base.LeaseStore.plan`."""
        _, epoch, text = self._run("plan")
        return (int(epoch), json.loads(text)) if text else None

    # -- anybody ------------------------------------------------------------------------------------------------
    def request(self, request: MoveRequest) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.request`."""
        self._run("request", request.id, _request_json(request))

    def set_released(self, released: bool) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.set_released`."""
        self._run("set_released", int(released))

    def settle(self, token: LeaderToken, request: MoveRequest) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.settle`."""
        kept = (int(request.is_over), KEPT_MOVES, KEPT_ANSWERS)
        self._lead_run("settle", token, request.id, _request_json(request), *kept)

    def moves(self) -> tuple[MoveRequest, ...]:
        """See :meth:`balancer.leases.base.LeaseStore.moves`."""
        return tuple(map(_request, self._run("moves")[1]))

    def close(self) -> None:
        """See :meth:`balancer.leases.base.LeaseStore.close`."""
        for waiter in self._waiters.values():
            waiter.close()
        self._waiters.clear()
        self._leave_home()

"""The route store in Redis or Valkey: a cache of tables, registrations with deadlines, gates, requests.

Nothing here decides: what is lost is read again from the table topic, or registers again. Layout below
``hw:{cluster:routes}:``, one hash tag, so that a script runs on one node of a cluster:

======================  ====  ================================================
``table:<topic>``       hash  epoch, topic_id, data
``producers``           set   names
``producer:<name>``     hash  nonce, deadline, who, acks, sample, rates
``gates:<topic>``       hash  group to epoch
``requests:<topic>``    hash  id to JSON
``leader:<topic>``      str   holder, with a time to live
======================  ====  ================================================
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from balancer.routing.base import ProducerState, Registration, SplitRequest
from balancer.routing.errors import RegistrationRefused, RouteStoreUnavailable
from balancer.routing.table import SlotTable, encode

_LUA = r"""
local P, step = KEYS[1], ARGV[1]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if step == 'register' or step == 'renew' then
  local name, nonce, ttl, who, acks, sample, rates = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
  local key = P .. 'producer:' .. name
  local other = redis.call('HGET', key, 'nonce')
  if step == 'renew' and other and other ~= nonce then return {'REFUSED'} end
  local before = redis.call('HGET', key, 'acks')
  redis.call('SADD', P .. 'producers', name)
  redis.call('HSET', key, 'nonce', nonce, 'deadline', now + tonumber(ttl), 'who', who, 'acks', acks,
    'sample', sample, 'rates', rates)
  if before ~= acks then redis.call('PUBLISH', P .. 'wake:planner', '') end
  local out = {'OK'}
  for i = 9, #ARGV do
    local epoch = redis.call('HGET', P .. 'table:' .. ARGV[i], 'epoch')
    if epoch then out[#out + 1] = ARGV[i] out[#out + 1] = epoch end
  end
  return out
end
if step == 'forget' then
  local key = P .. 'producer:' .. ARGV[2]
  if redis.call('HGET', key, 'nonce') == ARGV[3] then
    redis.call('DEL', key)
    redis.call('SREM', P .. 'producers', ARGV[2])
    redis.call('PUBLISH', P .. 'wake:planner', '')
  end
  return {'OK'}
end
if step == 'producers' then
  local out = {tostring(now)}
  for _, name in ipairs(redis.call('SMEMBERS', P .. 'producers')) do
    out[#out + 1] = redis.call('HMGET', P .. 'producer:' .. name, 'deadline', 'who', 'acks', 'sample', 'rates')
  end
  return out
end
if step == 'publish' then
  local key = P .. 'table:' .. ARGV[2]
  local have = redis.call('HMGET', key, 'epoch', 'topic_id')
  if have[1] and have[2] == ARGV[4] and tonumber(have[1]) >= tonumber(ARGV[3]) then return {'OLD'} end
  redis.call('HSET', key, 'epoch', ARGV[3], 'topic_id', ARGV[4], 'data', ARGV[5])
  redis.call('PUBLISH', P .. 'wake:producers', '')
  redis.call('PUBLISH', P .. 'wake:planner', '')
  return {'OK'}
end
if step == 'lead' then
  local key = P .. 'leader:' .. ARGV[2]
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[3] then return {'NO'} end
  redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
  return {'OK'}
end
if step == 'resign' then
  local key = P .. 'leader:' .. ARGV[2]
  if redis.call('GET', key) == ARGV[3] then redis.call('DEL', key) end
  return {'OK'}
end
if step == 'gate' then
  local key = P .. 'gates:' .. ARGV[2]
  local have = tonumber(redis.call('HGET', key, ARGV[3]) or '0')
  if tonumber(ARGV[4]) > have then redis.call('HSET', key, ARGV[3], ARGV[4]) end
  redis.call('PUBLISH', P .. 'wake:planner', '')
  return {'OK'}
end
return redis.error_reply('no step ' .. step)
"""


class RedisRouteStore:
    """One cluster's routes in Redis ≥ 6.2 or Valkey, behind any ``redis://``, ``rediss://`` or ``unix://`` address.

    Safe to use from several threads.

    Parameters
    ----------
    url
        Address of the server.
    cluster
        Name of the Kafka cluster.
    timeout
        How long a call may take before it counts as unavailable.
    """

    def __init__(self, url: str, cluster: str, timeout: timedelta = timedelta(seconds=1), **options: Any) -> None:
        self._url, self._prefix = url, f"hw:{{{cluster}:routes}}:"
        self._client = redis.Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=timeout.total_seconds(),
            socket_connect_timeout=timeout.total_seconds(),
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            **options,
        )
        self._script = self._client.register_script(_LUA)
        self._waiters: dict[tuple[int, str], redis.client.PubSub] = {}

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise RouteStoreUnavailable(f"route store {self._url} does not answer: {error}") from error

    def _run(self, step: str, *arguments: object) -> list[Any]:
        with self._translated():
            answer = self._script(keys=[self._prefix], args=[step, *map(str, arguments)])
        return list(answer)

    def register(self, who: Registration, ttl: timedelta) -> None:
        """See :meth:`balancer.routing.base.RouteStore.register`."""
        self._run("register", who.name, who.nonce, _ms(ttl), json.dumps(asdict(who)), "{}", "{}", "{}")

    def renew(
        self,
        who: Registration,
        ttl: timedelta,
        acks: Mapping[str, int],
        sample: Mapping[str, Sequence[str]],
        rates: Mapping[str, float],
    ) -> dict[str, int]:
        """See :meth:`balancer.routing.base.RouteStore.renew`."""
        facts = [json.dumps(x, sort_keys=True) for x in (asdict(who), dict(acks), dict(sample), dict(rates))]
        state, *flat = self._run("renew", who.name, who.nonce, _ms(ttl), *facts, *who.topics)
        if state == "REFUSED":
            raise RegistrationRefused(f"another producer named {who.name} has registered; names must be unique")
        return {topic: int(epoch) for topic, epoch in zip(flat[::2], flat[1::2], strict=True)}

    def leave(self, who: Registration) -> None:
        """See :meth:`balancer.routing.base.RouteStore.leave`."""
        self.forget(who)

    def table(self, topic: str) -> bytes | None:
        """See :meth:`balancer.routing.base.RouteStore.table`."""
        with self._translated():
            data = self._client.hget(f"{self._prefix}table:{topic}", "data")
        return None if data is None else str(data).encode()

    def wait(self, name: str, timeout: timedelta) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.wait`."""
        me = (threading.get_ident(), name)
        try:
            waiter = self._waiters.get(me)
            if waiter is None:
                waiter = self._waiters[me] = self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
                waiter.subscribe(f"{self._prefix}wake:{name}")
                return True  # what happened before is not told: look once
            end = time.monotonic() + timeout.total_seconds()
            while waiter.get_message(timeout=max(0.0, end - time.monotonic())) is None:
                if time.monotonic() >= end:  # None comes early for a confirmed subscription
                    return False
            while waiter.get_message(timeout=0.0) is not None:
                pass
            return True
        except (redis.RedisError, OSError) as error:
            gone = self._waiters.pop(me, None)
            if gone is not None:
                with contextlib.suppress(redis.RedisError, OSError):
                    gone.close()
            raise RouteStoreUnavailable(f"route store {self._url} does not answer: {error}") from error

    def lead(self, topic: str, holder: str, ttl: timedelta) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.lead`."""
        return bool(self._run("lead", topic, holder, _ms(ttl))[0] == "OK")

    def resign(self, topic: str, holder: str) -> None:
        """See :meth:`balancer.routing.base.RouteStore.resign`."""
        self._run("resign", topic, holder)

    def publish(self, table: SlotTable) -> bool:
        """See :meth:`balancer.routing.base.RouteStore.publish`."""
        data = encode(table).decode()
        return bool(self._run("publish", table.topic, table.epoch, table.topic_id, data)[0] == "OK")

    def producers(self) -> tuple[ProducerState, ...]:
        """See :meth:`balancer.routing.base.RouteStore.producers`."""
        now, *rows = self._run("producers")
        found = []
        for deadline, who, acks, sample, rates in rows:
            if who is not None:
                facts = json.loads(who)
                registration = Registration(**{**facts, "topics": tuple(facts["topics"])})
                live = int(deadline) > int(now)
                found.append(ProducerState(registration, live, json.loads(acks), json.loads(sample), json.loads(rates)))
        return tuple(sorted(found, key=lambda p: p.registration.name))

    def forget(self, who: Registration) -> None:
        """See :meth:`balancer.routing.base.RouteStore.forget`."""
        self._run("forget", who.name, who.nonce)

    def close_gates(self, topic: str, group: str, epoch: int) -> None:
        """See :meth:`balancer.routing.base.RouteStore.close_gates`."""
        self._run("gate", topic, group, epoch)

    def gates(self, topic: str) -> dict[str, int]:
        """See :meth:`balancer.routing.base.RouteStore.gates`."""
        with self._translated():
            found: Any = self._client.hgetall(f"{self._prefix}gates:{topic}")
        return {group: int(epoch) for group, epoch in found.items()}

    def request(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.request`."""
        self.settle(request)

    def requests(self, topic: str) -> tuple[SplitRequest, ...]:
        """See :meth:`balancer.routing.base.RouteStore.requests`."""
        with self._translated():
            found: Any = self._client.hvals(f"{self._prefix}requests:{topic}")
        return tuple(_request(text) for text in found)

    def settle(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.settle`."""
        with self._translated():
            key = f"{self._prefix}requests:{request.topic}"
            self._client.hset(key, request.id, json.dumps(asdict(request)))
            self._client.publish(f"{self._prefix}wake:planner", "")

    def drop(self, request: SplitRequest) -> None:
        """See :meth:`balancer.routing.base.RouteStore.drop`."""
        with self._translated():
            self._client.hdel(f"{self._prefix}requests:{request.topic}", request.id)

    def close(self) -> None:
        """Give up connections."""
        for waiter in self._waiters.values():
            with contextlib.suppress(redis.RedisError, OSError):
                waiter.close()
        self._client.close()


def _request(text: str) -> SplitRequest:
    facts = json.loads(text)
    lists = {"placement": tuple(tuple(part) for part in facts["placement"]), "numbers": tuple(facts["numbers"])}
    return SplitRequest(**{**facts, **lists})


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)

"""Plans, decisions, what was learned and leases in Redis, shared by all instances.

Everything of a group lives under one hash tag, and every write of a leader is one script that checks its token first:
a leader that was paused, partitioned or just slow is refused, however late its write arrives. Leases end by the
server's clock. The token is a number that only grows with a nonce beside it: should the server lose its data, the
number starts anew, and an old token with the same number is stale all the same.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import redis
from redis import exceptions
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from balancer.errors import PlanStoreUnavailable, StaleLeader
from balancer.plan import ScalingPlan
from balancer.plans import codec
from balancer.plans.base import Decision, LeaderToken
from forecaster.topics import GroupId

_LEAD = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return {} end
local fence = redis.call('HMGET', KEYS[2], 'number', 'nonce', 'holder')
if held and fence[2] and fence[3] == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {fence[1], fence[2]}
end
local number = redis.call('HINCRBY', KEYS[2], 'number', 1)
redis.call('HSET', KEYS[2], 'nonce', ARGV[3], 'holder', ARGV[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {tostring(number), ARGV[3]}
"""

# KEYS: fence, …; ARGV: number, nonce, …. Nothing is written with a stale token; the answer then names who leads.
_CHECK = """
local fence = redis.call('HMGET', KEYS[1], 'number', 'nonce', 'holder')
if fence[1] ~= ARGV[1] or fence[2] ~= ARGV[2] then return {'stale', fence[2] and fence[3] or '', fence[1] or '0'} end
"""
_RESIGN = _CHECK + "redis.call('HDEL', KEYS[1], 'nonce', 'holder'); redis.call('DEL', KEYS[2]); return {'ok'}"
_PUBLISH = (
    _CHECK
    + """
local version = redis.call('HINCRBY', KEYS[2], 'version', 1)
redis.call('HSET', KEYS[2], 'plan', ARGV[3])
return {'ok', tostring(version)}
"""
)
_RECORD = (
    _CHECK
    + """
redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[3])
local newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
local before = string.format('(%.0f', tonumber(newest) - tonumber(ARGV[6]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', before, 'LIMIT', 0, 1000)) do
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[3], id)
end
return {'ok'}
"""
)
_ATTACH = (
    _CHECK
    + """
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4]) end
return {'ok'}
"""
)
_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
"""
_LEARN = _CHECK + "redis.call('HSET', KEYS[2], ARGV[3], ARGV[4]); return {'ok'}"


class RedisPlanStore:
    """The :class:`balancer.plans.base.PlanStore` in Redis, Valkey or a cluster of them.

    Parameters
    ----------
    url
        ``redis://``, ``rediss://`` or ``unix://``; of a Redis Cluster any node.
    cluster
        Name of the Kafka cluster; groups of several live side by side.
    keep_decisions
        Age, counted from a group's newest decision, at which its decisions are dropped.
    timeout_s
        How long an answer may take.

    Raises
    ------
    PlanStoreUnavailable
        If nobody answers there, or access is refused.
    """

    def __init__(
        self, url: str, cluster: str, *, keep_decisions: timedelta = timedelta(days=14), timeout_s: float = 10.0
    ) -> None:
        self._cluster = cluster
        self._keep_us = keep_decisions // timedelta(microseconds=1)
        parts = urlsplit(url)
        self._place = f"{parts.scheme}://{parts.path if parts.scheme == 'unix' else parts.netloc.rpartition('@')[2]}"
        self._client: Any = None
        self._digests: dict[str, str] = {}
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": timeout_s,
            "socket_connect_timeout": min(timeout_s, 3.0),
            "client_name": "headway",
        }
        transient: list[type[Exception]] = [
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.BusyLoadingError,
        ]
        retry = Retry(ExponentialBackoff(cap=0.5, base=0.02), 4)
        try:
            self._client = redis.Redis.from_url(url, retry=retry, retry_on_error=transient, **options)
            if int(self._client.info("cluster").get("cluster_enabled", 0)):
                self._client.close()
                self._client = RedisCluster.from_url(url, **options)
        except exceptions.RedisError as exc:
            raise self._unavailable(exc) from exc
        except ValueError as exc:
            raise PlanStoreUnavailable(f"{self._place}: {exc}; use redis://, rediss:// or unix://") from exc

    def lead(self, group: GroupId, holder: str, ttl: timedelta) -> LeaderToken | None:
        """Take or renew the lease of a group (:meth:`PlanStore.lead`)."""
        keys = [self._key("lease", group), self._key("fence", group)]
        found = self._run(_LEAD, keys, [holder, max(ttl // timedelta(milliseconds=1), 1), secrets.token_hex(8)])
        return LeaderToken(group, int(found[0]), found[1].decode(), holder) if found else None

    def resign(self, token: LeaderToken) -> None:
        """Give the lease back, if it is still ours."""
        keys = [self._key("fence", token.group), self._key("lease", token.group)]
        self._run(_RESIGN, keys, [token.number, token.nonce])

    def publish(self, plan: ScalingPlan, token: LeaderToken) -> int:
        """Replace the group's plan; return its version."""
        text = codec.dumps(codec.plan_to_json(plan))
        return int(self._write(_PUBLISH, plan.group, token, [self._key("plan", plan.group)], [text])[1])

    def latest(self, group: GroupId) -> tuple[int, ScalingPlan] | None:
        """Return the published plan and its version."""
        version, text = self._call("HMGET", self._key("plan", group), "version", "plan")
        return None if text is None else (int(version), codec.plan_from_json(codec.loads(text)))

    def record(self, decision: Decision, token: LeaderToken) -> None:
        """Append to the decision log; the same id again replaces what it held."""
        group, at_us = decision.group, (decision.at - _EPOCH) // timedelta(microseconds=1)
        body = zlib.compress(codec.dumps(codec.decision_to_json(decision)).encode(), level=1)
        keys = [self._key("decision", group), self._key("log", group)]
        self._write(_RECORD, group, token, keys, [decision.id, at_us, body, self._keep_us])

    def decisions(self, group: GroupId, since: datetime, limit: int = 1000) -> Sequence[Decision]:
        """Return decisions from ``since`` on, oldest first."""
        since_us = (since - _EPOCH) // timedelta(microseconds=1)
        ids = self._call("ZRANGEBYSCORE", self._key("log", group), since_us, "+inf", "LIMIT", 0, limit)
        bodies = self._call("HMGET", self._key("decision", group), *ids) if ids else []
        return [codec.decision_from_json(codec.loads(zlib.decompress(body))) for body in bodies if body is not None]

    def decision(self, group: GroupId, id: str) -> Decision | None:
        """Return one decision by its id."""
        body = self._call("HGET", self._key("decision", group), id)
        return None if body is None else codec.decision_from_json(codec.loads(zlib.decompress(body)))

    def attach(self, group: GroupId, name: str, body: bytes, keep: timedelta, token: LeaderToken) -> None:
        """Keep some bytes of a group for a while."""
        keep_ms = max(keep // timedelta(milliseconds=1), 1)
        self._write(_ATTACH, group, token, [self._attachment(group, name)], [body, keep_ms])

    def attached(self, group: GroupId, name: str) -> bytes | None:
        """Return what was attached under a name."""
        found: bytes | None = self._call("GET", self._attachment(group, name))
        return found

    def _attachment(self, group: GroupId, name: str) -> str:
        return f"{self._key('attached', group)}:{quote(name, safe='')}"

    def learn(self, group: GroupId, name: str, value: Mapping[str, Any], token: LeaderToken) -> None:
        """Keep something learned under a name."""
        self._write(_LEARN, group, token, [self._key("learned", group)], [name, codec.dumps(value)])

    def learned(self, group: GroupId, name: str) -> Mapping[str, Any] | None:
        """Return what was learned under a name."""
        text = self._call("HGET", self._key("learned", group), name)
        return None if text is None else codec.loads(text)

    def setting(self, scope: str, name: str) -> Mapping[str, Any] | None:
        """Return an operator's setting."""
        text = self._call("HGET", self._key("setting", scope), name)
        return None if text is None else codec.loads(text)

    def set_setting(self, scope: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Keep an operator's setting, or drop it with None."""
        if value is None:
            self._call("HDEL", self._key("setting", scope), name)
        else:
            self._call("HSET", self._key("setting", scope), name, codec.dumps(value))

    def swap_setting(
        self, scope: str, name: str, expected: Mapping[str, Any] | None, value: Mapping[str, Any] | None
    ) -> bool:
        """Keep or drop a setting if it still is what was read; False if it is not."""
        texts = ["" if v is None else codec.dumps(v) for v in (expected, value)]
        return bool(self._run(_SWAP, [self._key("setting", scope)], [name, *texts]))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _key(self, kind: str, group: str) -> str:
        return f"hw:{kind}:{{{quote(self._cluster, safe='')}:{quote(group, safe='')}}}"

    def _write(
        self, script: str, group: GroupId, token: LeaderToken, keys: Sequence[str], arguments: Sequence[Any]
    ) -> list[Any]:
        found: list[Any] = self._run(
            script, [self._key("fence", group), *keys], [token.number, token.nonce, *arguments]
        )
        if found[0] == b"stale":
            leader = f"{found[1].decode()} ({found[2].decode()})" if found[1] else "nobody"
            raise StaleLeader(f"{group}: token {token.number} of {token.holder} is stale; {leader} leads now")
        return found

    def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script by its digest; its text goes over the wire only where the server does not have it."""
        try:
            digest = self._digests.get(script)
            if digest is not None:
                try:
                    return self._client.evalsha(digest, len(keys), *keys, *arguments)
                except exceptions.NoScriptError:
                    pass
            found = self._client.eval(script, len(keys), *keys, *arguments)
        except exceptions.RedisError as exc:
            raise self._unavailable(exc) from exc
        self._digests[script] = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        return found

    def _call(self, *command: Any) -> Any:
        try:
            return self._client.execute_command(*command)
        except exceptions.RedisError as exc:
            raise self._unavailable(exc) from exc

    def _unavailable(self, error: exceptions.RedisError) -> PlanStoreUnavailable:
        text = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        for kinds, remedy in _REMEDIES:
            if isinstance(error, kinds) or (not kinds and text.startswith("MISCONF")):
                return PlanStoreUnavailable(f"{self._place}: {text}; {remedy}")
        return PlanStoreUnavailable(f"{self._place}: {text}")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDIES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((exceptions.AuthenticationError, exceptions.NoPermissionError), "check user and password in [store] url"),
    ((exceptions.ReadOnlyError,), "this is a read-only replica: point [store] url at the primary"),
    ((exceptions.OutOfMemoryError,), "raise the server's maxmemory"),
    ((exceptions.ConnectionError, exceptions.TimeoutError), "is the server up?"),
    ((), "the server cannot write its files: make room on its disk"),
)

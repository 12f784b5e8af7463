"""Talking to Redis: one server or a cluster, batches by key, errors in our own words."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn
from urllib.parse import urlsplit

import redis
from hiredis import pack_command
from redis import exceptions
from redis.backoff import ExponentialBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from forecaster.errors import StoreError, StoreRefused, StoreUnavailable

Command = tuple[Any, ...]
_ATTEMPTS = 5
_CHANGES_S = 20.0
"""How long a transaction is tried against others that change the same keys, with growing random pauses between."""

_PAUSE_S = 0.002, 0.1
"""The first and the longest of those pauses."""

_MOVING_S = 0.1
"""Pause before a cluster is asked again who holds what: a fail-over takes some."""


class ServerRefused(StoreRefused):
    """The server takes no writes at present, whatever they are: what was to be written is worth keeping."""


class RedisLink:
    """A connection to one Redis or to a Redis Cluster.

    Parameters
    ----------
    url
        ``redis://``, ``rediss://`` or ``unix://``; of a cluster any node.
    timeout_s
        How long an answer may take.

    Raises
    ------
    StoreUnavailable, StoreRefused
        If nobody answers there, or access is refused.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        self.place = place_of(url)
        options: dict[str, Any] = {
            "protocol": 2,  # the newer one changes the shape of answers
            "socket_timeout": timeout_s,
            "socket_connect_timeout": min(timeout_s, 3.0),
            "client_name": "headway",
        }
        self._scripts: dict[str, str] = {}
        self._cluster: Any = None
        try:
            self._single = redis.Redis.from_url(
                url, retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 4), retry_on_error=_TRANSIENT, **options
            )
            if self._single.get_connection_kwargs().get("db", 0):
                raise StoreRefused(f"{self.place}: use database 0, the only one that a cluster has")
            if int(self._single.info("cluster").get("cluster_enabled", 0)):
                self._cluster = RedisCluster.from_url(url, **options)
        except exceptions.RedisError as exc:
            self.refuse(exc)
        except ValueError as exc:
            raise StoreRefused(f"{self.place}: {exc}; use redis://, rediss:// or unix://") from exc

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return self._cluster is not None

    def call(self, key: str, *command: Any) -> Any:
        """Run one command where ``key`` lives."""
        (answer,) = self.batch([(key, command)])
        return self.checked(answer)

    def batch(self, commands: Sequence[tuple[str, Command]]) -> list[Any]:
        """Run commands, each where its key lives, in one round trip a server and in order within a server.

        Returns
        -------
        list
            An answer a command; an error of one command stands in its place, as the client's exception.

        Raises
        ------
        StoreUnavailable
            If a server does not answer.
        """
        answers: list[Any] = [None] * len(commands)
        todo = list(range(len(commands)))
        for attempt in range(_ATTEMPTS):
            failed: list[int] = []
            for client, where in self._by_server([commands[i][0] for i in todo]).items():
                mine = [todo[i] for i in where]
                pipe: Any = client.pipeline(transaction=False)
                for i in mine:
                    pipe.execute_command(*commands[i][1])
                try:
                    found = pipe.execute(raise_on_error=False)
                except exceptions.RedisError as exc:
                    if attempt + 1 == _ATTEMPTS or self._cluster is None:
                        self.refuse(exc)
                    failed.extend(mine)
                    continue
                for i, answer in zip(mine, found, strict=True):
                    if isinstance(answer, _REROUTED):
                        failed.append(i)
                    answers[i] = answer
            if not failed:
                return answers
            todo = sorted(failed)
            self._rediscover()
        return answers

    def script(self, source: str, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        """Run a Lua script once per (keys, arguments), in one round trip; answers as in :meth:`batch`."""
        digest = self._scripts.get(source)
        if digest is None:
            digest = self._load(source)
        commands = [(keys[0], ("EVALSHA", digest, len(keys), *keys, *args)) for keys, args in calls]
        answers = self.batch(commands)
        lost = [i for i, answer in enumerate(answers) if isinstance(answer, exceptions.NoScriptError)]
        if lost:  # the server was restarted or failed over, and scripts are not kept
            self._load(source)
            for i, answer in zip(lost, self.batch([commands[i] for i in lost]), strict=True):
                answers[i] = answer
        return answers

    def transact(self, keys: Sequence[str], build: Callable[[], Sequence[Command] | None]) -> bool:
        """Run what ``build`` returns as one transaction, again when somebody else has changed one of ``keys``.

        ``build`` reads by :meth:`call` or :meth:`batch`; None stands for "nothing to do". All keys live together.
        """
        deadline, pause_s = time.monotonic() + _CHANGES_S, _PAUSE_S[0]
        while time.monotonic() < deadline:
            try:
                pipe: Any
                with self._server_of(keys[0]).pipeline(transaction=True) as pipe:
                    pipe.watch(*keys)
                    commands = build()
                    if commands is None:
                        return False
                    pipe.multi()
                    for command in commands:
                        pipe.execute_command(*command)
                    pipe.execute()
                    return True
            except exceptions.WatchError:
                time.sleep(random.uniform(0, pause_s))  # two that pause alike would meet again
                pause_s = min(2 * pause_s, _PAUSE_S[1])
            except _REROUTED:
                self._rediscover()
            except exceptions.RedisError as exc:
                self.refuse(exc)

        raise StoreUnavailable(f"{self.place}: {keys[0]} is changed by somebody else all the time; try again")

    def guarded(
        self, watched: Sequence[str], looks: Sequence[Command], build: Callable[[Sequence[Any]], Sequence[Command]]
    ) -> bool:
        """Look at something, and run what ``build`` makes of the answers if nobody changed ``watched`` meanwhile.

        The quick way for hundreds of small commands, on one server: two round trips, and no work per command but its
        packing. Whatever goes wrong is False, also where it is not known whether the commands have run: they must be
        such as may run twice, and the caller has a slower way that says what is wrong.
        """
        pool = self._single.connection_pool
        connection: Any = None
        try:
            connection = pool.get_connection()
            answers = self._asked(connection, [("WATCH", *watched), *looks])[1:]
            commands = build(answers)
            if not commands:
                self._asked(connection, [("UNWATCH",)])
                return False
            return self._asked(connection, [("MULTI",), *commands, ("EXEC",)])[-1] is not None
        except exceptions.RedisError:
            if connection is not None:
                connection.disconnect()  # answers may be left in it
            return False
        finally:
            if connection is not None:
                pool.release(connection)

    def scan(self, pattern: str) -> Iterator[str]:
        """Yield keys that match, from every server."""
        for client in self.servers():
            try:
                for key in client.scan_iter(match=pattern, count=1000):
                    yield key.decode() if isinstance(key, bytes) else key
            except exceptions.RedisError as exc:
                self.refuse(exc)

    def servers(self) -> list[redis.Redis]:
        """Return a client of each server that takes writes."""
        if self._cluster is None:
            return [self._single]
        return [self._cluster.get_redis_connection(node) for node in self._cluster.get_primaries()]

    def info(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO of each server."""
        try:
            return [client.info(section) for client in self.servers()]
        except exceptions.RedisError as exc:
            self.refuse(exc)

    def checked(self, answer: Any) -> Any:
        """Return an answer, or raise it in our own words if it is an error."""
        if isinstance(answer, exceptions.RedisError):
            self.refuse(answer)
        return answer

    def refuse(self, error: exceptions.RedisError) -> NoReturn:
        """Raise an error of the client in our own words."""
        raise translate(error, self.place) from error

    def close(self) -> None:
        """Close all connections."""
        self._single.close()
        if self._cluster is not None:
            self._cluster.close()

    @staticmethod
    def _asked(connection: Any, commands: Sequence[Command]) -> list[Any]:
        connection.send_packed_command([b"".join([pack_command(command) for command in commands])])
        return [connection.read_response() for _ in commands]

    def _server_of(self, key: str) -> redis.Redis:
        if self._cluster is None:
            return self._single
        client: redis.Redis = self._cluster.get_redis_connection(self._cluster.get_node_from_key(key))
        return client

    def _by_server(self, keys: Sequence[str]) -> dict[redis.Redis, list[int]]:
        if self._cluster is None:
            return {self._single: list(range(len(keys)))}
        grouped: dict[redis.Redis, list[int]] = {}
        for i, key in enumerate(keys):
            grouped.setdefault(self._server_of(key), []).append(i)
        return grouped

    def _rediscover(self) -> None:
        if self._cluster is not None:
            time.sleep(_MOVING_S)
            try:
                self._cluster.nodes_manager.initialize()
            except exceptions.RedisError as exc:
                self.refuse(exc)

    def _load(self, source: str) -> str:
        try:
            digests = [client.script_load(source) for client in self.servers()]
        except exceptions.RedisError as exc:
            self.refuse(exc)
        self._scripts[source] = str(digests[0])
        return self._scripts[source]


def place_of(url: str) -> str:
    """Return where a URL points, without its secrets.

    Examples
    --------
    >>> place_of("redis://user:secret@127.0.0.1:6380/0?x=1")
    'redis://127.0.0.1:6380'
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}"
    return f"{parts.scheme or 'redis'}://{parts.hostname or 'localhost'}:{parts.port or 6379}"


def translate(error: exceptions.RedisError, place: str) -> StoreError:
    """Return an error of the client in our own words, with the remedy."""
    said = _IN_PIPELINE.sub("", str(error))
    text = said.splitlines()[0] if said else type(error).__name__
    for kinds, starts, remedy in _REFUSALS:
        if isinstance(error, kinds) or text.startswith(starts):
            return ServerRefused(f"{place}: {text.rstrip('.')}; {remedy}")
    if isinstance(error, _SILENCES) or text.startswith(("LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")):
        return StoreUnavailable(f"{place}: {text.rstrip('.')}; is the server up?")
    return StoreRefused(f"{place}: {text}")


_IN_PIPELINE = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
"""What the client puts before a server's answer to one of several commands: their bytes, which nobody can read."""
_TRANSIENT: list[type[Exception]] = [exceptions.ConnectionError, exceptions.TimeoutError, exceptions.BusyLoadingError]
_REROUTED = (exceptions.MovedError, exceptions.AskError, exceptions.TryAgainError, exceptions.ClusterDownError)
_SILENCES = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterError,
    exceptions.RedisClusterException,
    *_REROUTED,
)
_REFUSALS: tuple[tuple[tuple[type[Exception], ...], tuple[str, ...], str], ...] = (
    (
        (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError),
        ("NOAUTH", "WRONGPASS"),
        "check user and password in [store] url",
    ),
    (
        (exceptions.NoPermissionError,),
        ("NOPERM",),
        "the user needs ~hw:* with +@read +@write +@scripting +@transaction +info +time",
    ),
    ((exceptions.ReadOnlyError,), ("READONLY",), "this is a read-only replica: point [store] url at the primary"),
    ((exceptions.OutOfMemoryError,), ("OOM",), "raise the server's maxmemory, or shorten the retention"),
    ((), ("MISCONF",), "the server cannot write its files: make room on its disk, or shorten the retention"),
)

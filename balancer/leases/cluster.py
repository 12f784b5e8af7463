"""Which node of a Redis Cluster keeps a group's leases: all keys of a group carry one hash tag, so it is one node."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis
from redis.crc import key_slot

ELSEWHERE: tuple[type[Exception], ...] = (
    redis.exceptions.MovedError,
    redis.exceptions.AskError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
)
"""What a node answers that does not keep the key now, or may not write it."""


class Seat:
    """Finds the server that keeps a key.

    Parameters
    ----------
    url
        Any node, or the one server where there is no cluster.
    key
        One of the keys.
    options
        For the connection that asks.

    Examples
    --------
    >>> Seat.at("rediss://user:word@seed:6379/0", "10.0.0.7", 7002)
    'rediss://user:word@10.0.0.7:7002/0'
    """

    def __init__(self, url: str, key: str, **options: Any) -> None:
        self._key, self._options = key, options
        self._nodes = [url]

    def find(self) -> str:
        """Return the address; every node that was ever seen is asked until one answers.

        Raises
        ------
        redis.RedisError, OSError
            If nobody does.
        """
        last: Exception = redis.ConnectionError("no node is known")
        for node in list(self._nodes):
            try:
                return self._ask(node)
            except (redis.RedisError, OSError) as error:
                last = error
        raise last

    def _ask(self, url: str) -> str:
        client: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2, **self._options)
        try:
            facts = client.info("cluster")
            if not int(facts.get("cluster_enabled", 0)):
                return url
            slot, home = key_slot(self._key.encode()), None
            for first, last, (host, port, *_), *_ in _ranges(client.execute_command("CLUSTER SLOTS")):
                node = self.at(url, host or urlsplit(url).hostname or "", port)
                if node not in self._nodes:
                    self._nodes.append(node)
                if first <= slot <= last:
                    home = node
            if home is None:
                raise redis.exceptions.ClusterDownError(f"no node keeps slot {slot}")
            return home
        finally:
            client.close()

    @staticmethod
    def at(url: str, host: str, port: int) -> str:
        """Return an address with another host and port."""
        parts = urlsplit(url)
        user, mark, _ = parts.netloc.rpartition("@")
        place = f"[{host}]" if ":" in host else host
        return parts._replace(netloc=f"{user}{mark}{place}:{port}").geturl()


def _ranges(answer: Any) -> list[Any]:
    """Return (first, last, [host, port, …], …) from either shape of ``CLUSTER SLOTS`` that the client gives."""
    if isinstance(answer, dict):
        return [(first, last, facts["primary"]) for (first, last), facts in answer.items()]
    return list(answer)

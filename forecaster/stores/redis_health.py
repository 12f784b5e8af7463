"""A look at the server: what it is, and which of its settings endanger the series."""

from __future__ import annotations

from forecaster.errors import StoreRefused
from forecaster.stores.base import StoreHealth
from forecaster.stores.redis_link import RedisLink

OLDEST = (6, 2)


def refuse_unfit(link: RedisLink) -> None:
    """Refuse a server that would lose series.

    Raises
    ------
    StoreRefused
        If it is too old, evicts keys, or is a replica; the message has the remedy.
    """
    for info in link.info("server"):
        version = str(info.get("redis_version", "0"))
        if tuple(int(n) for n in version.split(".")[:2]) < OLDEST:
            raise StoreRefused(f"{link.place}: Redis {version} is too old; 6.2 is the oldest that keeps series safely")
    for info in link.info("memory"):
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise StoreRefused(
                f"{link.place}: maxmemory-policy is {policy}, which drops whole series without a word; "
                "set it by: CONFIG SET maxmemory-policy noeviction (and in its configuration file)"
            )
    for info in link.info("replication"):
        if info.get("role") == "slave":
            raise StoreRefused(f"{link.place}: this is a read-only replica: point [store] url at the primary")


def look(link: RedisLink, layout: str, waiting: int) -> StoreHealth:
    """Return version, memory and warnings, over all servers of a cluster."""
    servers, memory, persistence = link.info("server"), link.info("memory"), link.info("persistence")
    warnings: list[str] = []
    if not all(info.get("aof_enabled") for info in persistence):
        warnings.append(
            "appendonly is off: a crash loses everything since the last snapshot; CONFIG SET appendonly yes"
        )
    if any(info.get("aof_last_write_status", "ok") != "ok" for info in persistence):
        warnings.append("the last write of the append-only file failed: is the disk full?")
    for info in memory:
        limit, used = int(info.get("maxmemory", 0)), int(info["used_memory"])
        if limit and used > 0.9 * limit:
            warnings.append(
                f"{used / limit:.0%} of maxmemory in use: raise it, or shorten the retention, before writes are refused"
            )
        if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
            warnings.append(f"maxmemory-policy is {policy}: CONFIG SET maxmemory-policy noeviction")
    if waiting:
        warnings.append(f"{waiting} ticks wait to be written again")
    first = servers[0]
    name = str(first.get("server_name", "redis"))
    return StoreHealth(
        kind="redis cluster" if link.is_cluster else "redis",
        server=f"{link.place} ({name})",
        version=str(first.get("valkey_version", first.get("redis_version", ""))),
        layout=layout,
        warnings=tuple(dict.fromkeys(warnings)),
    )

"""Hashes that place keys: the two that Kafka's producers use, so that adoption moves no key."""

from __future__ import annotations

import zlib
from collections.abc import Callable

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's positive murmur2 of a key, which Java's default partitioner takes modulo N.

    librdkafka agrees on keys that are not null. MurmurHash2 (A. Appleby, 2008) with Kafka's seed, top bit cleared.

    Examples
    --------
    >>> murmur2(b"21") == (-973932308 & 0x7FFFFFFF)  # a value of Kafka's own test
    True
    """
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _MULTIPLIER & _WORD
        k = (k ^ k >> 24) * _MULTIPLIER & _WORD
        h = (h * _MULTIPLIER & _WORD) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    h = (h ^ h >> 13) * _MULTIPLIER & _WORD
    return (h ^ h >> 15) & 0x7FFFFFFF


def crc32(key: bytes) -> int:
    """Return ``zlib.crc32`` of a key: what librdkafka's ``consistent`` partitioners take modulo N.

    Examples
    --------
    >>> crc32(b"order-17") == zlib.crc32(b"order-17")
    True
    """
    return zlib.crc32(key)


HASHES: dict[str, Callable[[bytes], int]] = {"murmur2": murmur2, "crc32": crc32}
"""Name in the settings → function."""


def slot_count(partitions: int) -> int:
    """Return the number of virtual slots for a topic of ``partitions`` at adoption: the least multiple of it ≥ 4096.

    A multiple, so that ``hash mod slots mod partitions == hash mod partitions`` and no key moves at adoption.

    Raises
    ------
    ValueError
        If there is no partition.

    Examples
    --------
    >>> slot_count(12), slot_count(4096), slot_count(5000)
    (4104, 4096, 5000)
    """
    if partitions < 1:
        raise ValueError(f"partitions={partitions} must be 1 or more")
    return partitions * -(-4096 // partitions)

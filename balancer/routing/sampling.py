"""A bounded, even sample of the keys that passed lately: what a heartbeat can carry."""

from __future__ import annotations

import random


class KeySample:
    """Algorithm R (Vitter, 1985) over the keys offered since the last :meth:`take`; a few, and how many were offered.

    Parameters
    ----------
    size
        Most keys kept.
    longest
        Longer keys are cut: a sample must not outgrow a heartbeat.
    seed
        Of the draw.

    Examples
    --------
    >>> sample = KeySample(2, seed=1)
    >>> for key in (b"a", b"b", b"c", b"d"):
    ...     sample.offer(key)
    >>> len(sample.take()), sample.offered, sample.take()
    (2, 0, ())
    """

    __slots__ = ("_keys", "_longest", "_random", "_size", "offered")

    def __init__(self, size: int = 50, longest: int = 64, seed: int | None = None) -> None:
        self._size, self._longest = size, longest
        self._random = random.Random(seed)
        self._keys: list[bytes] = []
        self.offered = 0

    def offer(self, key: bytes | None) -> None:
        """Let a key take part in the draw."""
        if key is None:
            return
        self.offered += 1
        if len(self._keys) < self._size:
            self._keys.append(key[: self._longest])
        elif (place := self._random.randrange(self.offered)) < self._size:
            self._keys[place] = key[: self._longest]

    def take(self) -> tuple[str, ...]:
        """Return the sample as hexadecimal text, and begin a new one."""
        keys, self._keys, self.offered = self._keys, [], 0
        return tuple(key.hex() for key in keys)

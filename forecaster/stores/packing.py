"""Integer cells ↔ bytes: rows of the open day, sealed days, months of hourly roll-ups.

Values are XORed with the sign bit, so that bytes which were never written (zeros) read as missing and zero is a value
like any other. Days and months are stored partition by partition, with the bytes of the integers shuffled (all first
bytes, then all second ones, …) and deflated: neighbours in time resemble each other, and high bytes hardly change.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.stores.base import Cells

HEADER_BYTES = 16
_HEADER = struct.Struct("<2sBBIII")
_VERSION = 1
_ROWS, _DAY, _MONTH = b"HR", b"HD", b"HM"
_SIGN: dict[int, Any] = {4: np.uint32(1 << 31), 8: np.uint64(1 << 63)}
_UNSIGNED: dict[int, np.dtype[Any]] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}
ROWS_PER_BLOCK = 120
Column = tuple[NDArray[np.int64], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What the header of a row block says.

    Parameters
    ----------
    step_s
        Step in seconds.
    width
        Partitions in a row.
    rows
        Steps in the block.
    item_bytes
        4 or 8.
    """

    step_s: int
    width: int
    rows: int
    item_bytes: int

    @property
    def row_bytes(self) -> int:
        """Length of one row."""
        return self.width * self.item_bytes

    @property
    def total_bytes(self) -> int:
        """Length of the whole block, header included."""
        return HEADER_BYTES + self.rows * self.row_bytes

    def header(self) -> bytes:
        """Return the header's bytes."""
        return _HEADER.pack(_ROWS, _VERSION, self.item_bytes, self.step_s, self.width, self.rows)

    @classmethod
    def from_header(cls, header: bytes) -> BlockShape:
        """Read a header.

        Raises
        ------
        ValueError
            If these are not the first bytes of a row block that this version understands.
        """
        item_bytes, step_s, width, rows = _read_header(_ROWS, header)
        return cls(step_s, width, rows, item_bytes)


@lru_cache(maxsize=256)
def rows_per_block(steps_per_day: int) -> int:
    """Return the most steps up to 120 that divide a day, so that no block lies in two days.

    Examples
    --------
    >>> [rows_per_block(n) for n in (8640, 1440, 288, 24, 1)]
    [120, 120, 96, 24, 1]
    """
    return max(n for n in range(1, min(ROWS_PER_BLOCK, steps_per_day) + 1) if steps_per_day % n == 0)


def item_bytes_for(values: NDArray[np.int64], known: NDArray[np.bool_]) -> int:
    """Return 4 where every known value fits into 31 bits, else 8."""
    if not values.size or int(values.max()) < 1 << 31:
        return 4
    return 8 if int(np.where(known, values, 0).max()) >= 1 << 31 else 4


def encode(values: NDArray[np.int64], known: NDArray[np.bool_], item_bytes: int) -> NDArray[Any]:
    """Return the stored integers, same shape; zero where not known."""
    raw = values.astype(_UNSIGNED[item_bytes])
    raw ^= _SIGN[item_bytes]
    if not known.all():
        raw[~known] = 0
    return raw


def decode(raw: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return values (zero where not known) and what is known.

    Examples
    --------
    >>> decode(encode(np.array([0, 7]), np.array([True, False]), 4))
    (array([0, 0]), array([ True, False]))
    """
    known: NDArray[np.bool_] = np.asarray(raw != 0, dtype=np.bool_)
    sign = _SIGN[raw.dtype.itemsize]
    values: NDArray[np.int64] = (raw ^ sign).astype(np.int64)
    if not known.all():
        values[~known] = 0
    return values, known


class Columns:
    """Columns (values, known) of many series, laid side by side by their length: each step runs over all at once.

    Examples
    --------
    >>> some = Columns([(np.array([1, 2**31]), np.array([True, True])), (np.array([1]), np.array([False]))])
    >>> some.item_bytes, some.whole
    ([8, 4], [True, False])
    >>> [len(row) for row in some.encoded([8, 4])]
    [16, 4]
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._count = len(columns)
        self.item_bytes = [4] * self._count
        """Bytes that an item of each column needs."""
        self.whole = [True] * self._count
        """Whether all of each column is known."""
        by_length: dict[int, list[int]] = {}
        for i, (values, _) in enumerate(columns):
            by_length.setdefault(len(values), []).append(i)
        self._stacks: list[tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]] = []
        for length, members in by_length.items():
            shape = (len(members), length)
            values = np.concatenate([columns[i][0] for i in members]).reshape(shape)
            known = np.concatenate([columns[i][1] for i in members]).reshape(shape)
            self._stacks.append((members, values, known))
            whole: NDArray[np.bool_] = np.asarray(known.all(axis=1))
            largest = (values if whole.all() else np.where(known, values, 0)).max(axis=1, initial=0)
            for i, is_whole, most in zip(members, whole.tolist(), largest.tolist(), strict=True):
                self.whole[i], self.item_bytes[i] = is_whole, 8 if most >= 1 << 31 else 4

    def encoded(self, item_bytes: Sequence[int]) -> list[bytes]:
        """Return the stored bytes of each column in items of so many bytes."""
        found = [b""] * self._count
        for members, values, known in self._stacks:
            sizes = np.array([item_bytes[i] for i in members])
            for size in np.unique(sizes).tolist():
                at = np.flatnonzero(sizes == size)
                raw: bytes = encode(values[at], known[at], size).tobytes()
                length = len(raw) // len(at)
                for place, row in enumerate(at.tolist()):
                    found[members[row]] = raw[place * length : (place + 1) * length]
        return found


def unpack_rows(block: bytes, first_index: int) -> Cells:
    """Return the cells of a row block.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    shape = BlockShape.from_header(block)
    if len(block) != shape.total_bytes:
        raise ValueError(f"a block of {shape.rows} rows of {shape.width} has {len(block)} bytes")
    raw = np.frombuffer(block, _UNSIGNED[shape.item_bytes], offset=HEADER_BYTES).reshape(shape.rows, shape.width)
    values, known = decode(raw)
    return Cells(first_index, values.T, known.T)


def pack_rows(cells: Cells, shape: BlockShape) -> bytes:
    """Return a whole row block; cells of fewer partitions leave the others missing."""
    raw = np.zeros((shape.rows, shape.width), _UNSIGNED[shape.item_bytes])
    raw[:, : cells.partitions] = encode(cells.values, cells.known, shape.item_bytes).T
    body: bytes = raw.tobytes()
    return shape.header() + body


def pack_day(cells: Cells, step_s: int) -> bytes:
    """Return a sealed day.

    Examples
    --------
    >>> day = Cells(0, np.arange(24)[None, :], np.arange(24)[None, :] != 3)
    >>> back = unpack_day(pack_day(day, 3600), 0)
    >>> back.values[0, :5].tolist(), back.known[0, :5].tolist()
    ([0, 1, 2, 0, 4], [True, True, True, False, True])
    """
    item_bytes = item_bytes_for(cells.values, cells.known)
    head = _HEADER.pack(_DAY, _VERSION, item_bytes, step_s, cells.partitions, cells.steps)
    return head + _squeeze(encode(cells.values, cells.known, item_bytes))


def unpack_day(block: bytes, first_index: int) -> Cells:
    """Return the cells of a sealed day.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    item_bytes, _, partitions, steps = _read_header(_DAY, block)
    values, known = decode(_expand(block, item_bytes, (partitions, steps)))
    return Cells(first_index, values, known)


def pack_month(sums: Cells, peaks: Cells) -> bytes:
    """Return a month of hourly sums and maxima, of the same shape."""
    planes = np.stack([encode(c.values, c.known, 8) for c in (sums, peaks)])
    return _HEADER.pack(_MONTH, _VERSION, 8, 3600, sums.partitions, sums.steps) + _squeeze(planes)


def unpack_month(block: bytes, first_hour: int) -> tuple[Cells, Cells]:
    """Return a month's hourly sums and maxima.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    item_bytes, _, partitions, hours = _read_header(_MONTH, block)
    values, known = decode(_expand(block, item_bytes, (2, partitions, hours)))
    return Cells(first_hour, values[0], known[0]), Cells(first_hour, values[1], known[1])


def _squeeze(raw: NDArray[Any]) -> bytes:
    item_bytes = raw.dtype.itemsize
    shuffled = np.ascontiguousarray(raw).view(np.uint8).reshape(-1, item_bytes).T
    return zlib.compress(shuffled.tobytes(), level=1)


def _expand(block: bytes, item_bytes: int, shape: tuple[int, ...]) -> NDArray[Any]:
    count = int(np.prod(shape))
    try:
        plain = zlib.decompress(memoryview(block)[HEADER_BYTES:], bufsize=count * item_bytes)
    except zlib.error as exc:
        raise ValueError(f"a sealed block is damaged: {exc}") from exc
    if len(plain) != count * item_bytes:
        raise ValueError(f"a sealed block of shape {shape} has {len(plain)} bytes")
    planes = np.frombuffer(plain, np.uint8).reshape(item_bytes, count)
    raw: NDArray[Any] = np.ascontiguousarray(planes.T).reshape(-1).view(_UNSIGNED[item_bytes]).reshape(shape)
    return raw


def _read_header(magic: bytes, block: bytes) -> tuple[int, int, int, int]:
    if len(block) < HEADER_BYTES:
        raise ValueError(f"a block of {len(block)} bytes has no header")
    found, version, item_bytes, step_s, width, length = _HEADER.unpack_from(block)
    if found != magic or version != _VERSION or item_bytes not in _UNSIGNED:
        raise ValueError(f"not a block that this version reads: {bytes(block[:HEADER_BYTES])!r}")
    return item_bytes, step_s, width, length

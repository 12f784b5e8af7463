"""Model artefacts on disk: written whole or not at all, checked before they are opened, one of them current.

::

    models/<cluster>/<topic>/current.json                    which version serves, and which served before
    models/<cluster>/<topic>/<version>/forecaster.joblib     the fitted method
    models/<cluster>/<topic>/<version>/card.json             what it is; written with it, checked before it

A joblib file is a pickle: opening it runs code. The SHA-256 in the card tells a damaged file from a whole one; against
somebody who can write the folder only the optional HMAC helps (``key``): with a key, an artefact that was not signed
with it is refused. This is the only file of the package that knows joblib.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import io
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import joblib

from forecaster.errors import ArtefactRefused
from forecaster.methods.base import Method
from forecaster.topics import StreamId

FORMAT = 1
"""Layout of an artefact; raised when an older Headway could not read a newer file."""

MODEL_FILE, CARD_FILE, CURRENT_FILE = "forecaster.joblib", "card.json", "current.json"
HALF_WRITTEN_S = 3600.0
LIBRARIES = ("numpy", "pandas", "scikit-learn", "joblib")


@dataclass(frozen=True, slots=True)
class Card:
    """What an artefact is: enough to judge it, and to train it again.

    Parameters
    ----------
    topic, cluster
        Stream it was trained for.
    version
        Name of the artefact's folder, set by :meth:`ModelRegistry.save`.
    method, params
        Name of the method and its constructor parameters.
    step_s, timezone
        Grid of the series it was trained on; it forecasts that step alone.
    data_start, data_end, data_steps, partitions, known_share
        Range and size of the training data.
    data_sha256
        Digest of the counts and gaps it was trained on, so that "the same data" can be checked.
    seed
        Seed of everything random in the training.
    scores
        Figures of the backtest before training, and how it was made.
    versions
        Versions of Python and of the libraries that wrote it.
    created_at
        When, ISO 8601 UTC.
    licence
        Terms of the training data, for artefacts that are shipped.
    recipe
        How it was trained (`forecaster.training.TrainingPolicy.recipe`), calendar included: with the same data and
        versions it gives the same method again. Empty on the cards of older releases.
    """

    topic: str
    cluster: str
    method: str
    step_s: int
    timezone: str
    data_start: str
    data_end: str
    data_steps: int
    partitions: int
    known_share: float
    data_sha256: str
    seed: int
    created_at: str
    version: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    licence: str | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT
    sha256: str = ""
    bytes: int = 0
    hmac_sha256: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the card as it is written."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Artefact:
    """A loaded artefact: the fitted method and its card."""

    method: Method
    card: Card


class ModelRegistry:
    """Artefacts of many streams under one folder.

    Parameters
    ----------
    root
        The folder; made on the first write.
    key
        Secret for signing and checking cards; without it nothing is signed, and a signed artefact is not checked.

    Examples
    --------
    >>> import tempfile
    >>> registry = ModelRegistry(Path(tempfile.mkdtemp()))
    >>> registry.current(StreamId("main", "orders")) is None
    True
    """

    def __init__(self, root: Path, *, key: bytes | None = None) -> None:
        self.root = root
        self._key = key

    def folder(self, stream: StreamId) -> Path:
        """Return the folder of a stream; names are percent-encoded, so that none can climb out of the root."""
        return self.root / _encoded(stream.cluster) / _encoded(stream.topic)

    def streams(self) -> tuple[StreamId, ...]:
        """Return the streams that have a current artefact, sorted."""
        found = self.root.glob(f"*/*/{CURRENT_FILE}")
        return tuple(sorted(StreamId(unquote(p.parent.parent.name), unquote(p.parent.name)) for p in found))

    def versions(self, stream: StreamId) -> tuple[str, ...]:
        """Return the versions that were written whole, oldest first."""
        return tuple(sorted(p.parent.name for p in self.folder(stream).glob(f"[!.]*/{CARD_FILE}")))

    def current(self, stream: StreamId) -> str | None:
        """Return the version that serves, or None if none was ever promoted.

        Raises
        ------
        ArtefactRefused
            If ``current.json`` cannot be read.
        """
        history = self._history(stream)
        return history[0] if history else None

    def since(self, stream: StreamId) -> datetime | None:
        """Return since when the current version serves; None if none does. Raises as :meth:`current` does."""
        if self.current(stream) is None:
            return None
        return datetime.fromisoformat(str(_read_json(self.folder(stream) / CURRENT_FILE, "damaged")["since"]))

    def save(self, stream: StreamId, method: Method, card: Card) -> Card:
        """Write an artefact whole or not at all; return its card with version, digest and signature.

        Raises
        ------
        ArtefactRefused
            If the folder cannot be written (no space, no permission); nothing is left behind.
        """
        folder = self.folder(stream)
        model = as_bytes(method)
        version = _free_name(folder, card.created_at)
        whole = asdict(card) | {
            "version": version,
            "versions": running_versions(),
            "sha256": hashlib.sha256(model).hexdigest(),
            "bytes": len(model),
            "format": FORMAT,
        }
        whole["hmac_sha256"] = None if self._key is None else _signature(whole, self._key)
        temporary = folder / f".{version}.{uuid4().hex}"
        with _writing(folder, temporary):
            temporary.mkdir(parents=True)
            _write(temporary / MODEL_FILE, model)
            _write(temporary / CARD_FILE, _as_json(whole))
            temporary.rename(folder / version)
            _sync(folder)
        return Card(**whole)

    def load(self, stream: StreamId, version: str | None = None) -> Artefact:
        """Open an artefact (the current one by default), after checking everything that can be checked closed.

        Raises
        ------
        ArtefactRefused
            If there is none, it is half-written, damaged, newer than this Headway, signed by somebody else, or was
            written under another scikit-learn. The message names the file and the remedy.
        """
        name = version or self.current(stream)
        if name is None:
            raise ArtefactRefused(f"{self.folder(stream)}: no artefact is current; run `headway train` for it")
        return self.open(self.folder(stream) / name)

    def open(self, folder: Path) -> Artefact:
        """Check and open the artefact in one folder; raises as :meth:`load` does."""
        card = self.read_card(folder)
        path = folder / MODEL_FILE
        try:
            model = path.read_bytes()
        except OSError as exc:
            raise ArtefactRefused(f"{path}: {exc.strerror}: half-written; {_AGAIN}") from exc
        if len(model) != card.bytes or hashlib.sha256(model).hexdigest() != card.sha256:
            raise ArtefactRefused(f"{path}: SHA-256 differs from its card: damaged or changed; {_AGAIN}")
        try:
            with warnings.catch_warnings():
                # scikit-learn warns at any other patch release; minor versions were compared when the card was read
                warnings.simplefilter("ignore")
                method = joblib.load(io.BytesIO(model))
        except Exception as exc:  # a pickle may raise anything; whatever it is, this artefact is of no use
            raise ArtefactRefused(f"{path}: cannot be opened ({type(exc).__name__}: {exc}); {_AGAIN}") from exc
        if not isinstance(method, Method):
            raise ArtefactRefused(f"{path}: holds a {type(method).__name__}, not a forecasting method; {_AGAIN}")
        return Artefact(method, card)

    def read_card(self, folder: Path) -> Card:
        """Read and check a card without opening its model; raises as :meth:`load` does."""
        path = folder / CARD_FILE
        raw = _read_json(path, "half-written")
        if not isinstance(raw.get("format"), int):
            raise ArtefactRefused(f"{path}: not a card of Headway; {_AGAIN}")
        if raw["format"] > FORMAT:
            raise ArtefactRefused(
                f"{path}: format {raw['format']} is newer than this Headway reads ({FORMAT}); upgrade Headway, or "
                f"`headway rollback` to an older version"
            )
        known = {f.name for f in fields(Card)}
        try:
            card = Card(**{k: v for k, v in raw.items() if k in known})
        except TypeError as exc:
            raise ArtefactRefused(f"{path}: incomplete card ({exc}); {_AGAIN}") from exc
        if self._key is not None:
            signed = card.hmac_sha256 or ""
            if not hmac.compare_digest(signed, _signature(raw, self._key)):
                state = "is not signed" if not signed else "is signed with another key, or was changed"
                raise ArtefactRefused(f"{path}: {state}; {_AGAIN}, or fix the key of the models")
        written, here = card.versions.get("scikit-learn", "unknown"), importlib.metadata.version("scikit-learn")
        if _minor(written) != _minor(here):
            raise ArtefactRefused(
                f"{path}: written under scikit-learn {written}, here is {here}, untested together; "
                f"{_AGAIN}, or install scikit-learn=={_minor(written)}.*"
            )
        return card

    def promote(self, stream: StreamId, version: str, now: datetime) -> None:
        """Make a version current, after opening it once: what cannot be loaded is never promoted.

        Raises
        ------
        ArtefactRefused
            If the version cannot be loaded, or the folder cannot be written.
        """
        self.load(stream, version)
        self._set(stream, [version, *(v for v in self._readable_history(stream) if v != version)], now)

    def rollback(self, stream: StreamId, now: datetime, to: str | None = None) -> str:
        """Go back to the version that served before (or to a named one); return it.

        Raises
        ------
        ArtefactRefused
            If there is nothing to go back to, or it cannot be loaded; the current version stays.
        """
        history = self._history(stream) if to is None else self._readable_history(stream)
        target = to or (history[1] if len(history) > 1 else None)
        if target is None:
            raise ArtefactRefused(f"{self.folder(stream)}: nothing to go back to; there is one version or none")
        if target not in self.versions(stream):
            have = ", ".join(self.versions(stream)) or "none"
            raise ArtefactRefused(f"{self.folder(stream)}: no version {target}; there are {have}")
        self.load(stream, target)
        # what was rolled back is forgotten as a predecessor: a second rollback goes further back, never forth
        self._set(stream, [target, *(v for v in history[1:] if v != target)], now)
        return target

    def prune(self, stream: StreamId, keep: int = 5) -> tuple[str, ...]:
        """Remove the oldest versions beyond ``keep``, never the current one or its predecessor; return what went.

        What a killed process left half-written goes too, an hour after its last change.
        """
        for half in self.folder(stream).glob(".*.*"):
            if time.time() - half.stat().st_mtime > HALF_WRITTEN_S:
                shutil.rmtree(half) if half.is_dir() else half.unlink()
        safe = set(self._readable_history(stream)[:2])
        old = [v for v in self.versions(stream)[:-keep] if v not in safe]
        for version in old:
            shutil.rmtree(self.folder(stream) / version)
        return tuple(old)

    def _history(self, stream: StreamId) -> list[str]:
        """Return the versions that served, latest first."""
        path = self.folder(stream) / CURRENT_FILE
        if not path.exists():
            return []
        raw = _read_json(path, "damaged")
        version, previous = raw.get("version"), raw.get("previous", [])
        if not isinstance(version, str) or not isinstance(previous, list):
            raise ArtefactRefused(f"{path}: names no version; `headway rollback --to VERSION` writes it anew")
        return [version, *map(str, previous)]

    def _readable_history(self, stream: StreamId) -> list[str]:
        """Return the history, or nothing where ``current.json`` is damaged and about to be written anew."""
        try:
            return self._history(stream)
        except ArtefactRefused:
            return []

    def _set(self, stream: StreamId, history: list[str], now: datetime) -> None:
        path = self.folder(stream) / CURRENT_FILE
        entry = {"version": history[0], "previous": history[1:20], "since": now.astimezone(UTC).isoformat()}
        temporary = path.with_name(f".{CURRENT_FILE}.{uuid4().hex}")
        with _writing(path.parent, temporary):
            _write(temporary, _as_json(entry))
            temporary.replace(path)
            _sync(path.parent)


_AGAIN = "train it again with `headway train`"


def as_bytes(method: Method) -> bytes:
    """Return a method as it stands in its file."""
    buffer = io.BytesIO()
    joblib.dump(method, buffer, compress=("zlib", 3))
    return buffer.getvalue()


def running_versions() -> dict[str, str]:
    """Return the versions that matter to an artefact: Python, Headway and the libraries a pickle depends on."""
    have = {"python": platform.python_version()}
    for name in ("headway", *LIBRARIES):
        try:
            have[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            have[name] = "not installed"
    return have


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _encoded(name: str) -> str:
    text = quote(name, safe="")
    return "%2E" + text[1:] if text.startswith(".") else text


def _free_name(folder: Path, created_at: str) -> str:
    stamp = datetime.fromisoformat(created_at).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    name, n = stamp, 1
    while (folder / name).exists():
        n += 1
        name = f"{stamp}-{n}"
    return name


def _signature(card: Mapping[str, Any], key: bytes) -> str:
    signed = json.dumps({k: v for k, v in card.items() if k != "hmac_sha256"}, sort_keys=True)
    return hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()


def _as_json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _read_json(path: Path, fault: str) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text())
    except OSError as exc:
        raise ArtefactRefused(f"{path}: {exc.strerror}: {fault}; {_AGAIN}") from exc
    except ValueError as exc:
        raise ArtefactRefused(f"{path}: not JSON ({exc}): {fault}; {_AGAIN}") from exc
    if not isinstance(raw, dict):
        raise ArtefactRefused(f"{path}: holds no object: {fault}; {_AGAIN}")
    return raw


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make a rename last: a folder's entries are on disk only after its own fsync."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _writing(folder: Path, temporary: Path) -> Iterator[None]:
    """Turn a failed write into one clear line, and leave nothing of it behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as exc:
        remove: Callable[[Path], object] = shutil.rmtree if temporary.is_dir() else Path.unlink
        if temporary.exists():
            remove(temporary)
        reason = exc.strerror or str(exc)
        raise ArtefactRefused(f"{folder}: cannot write ({reason}); make room or name another folder") from exc

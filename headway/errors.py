"""What the application itself refuses.

::

    HeadwayError
    ├── SettingsRefused    a settings file or environment variable that cannot be meant; names key and remedy
    ├── UnknownGroup       nobody configured that group; names the nearest ones
    ├── Forbidden          a token is missing or wrong
    └── NotReady           something that the request needs is not there yet; says when to come back
"""

from __future__ import annotations

import errno
from collections.abc import Sequence


class HeadwayError(Exception):
    """Root of the tree; the message is one line that says what happened and what to do."""


class SettingsRefused(HeadwayError):
    """Settings that cannot be meant. The message names file, key, value and the remedy."""


class UnknownGroup(HeadwayError):
    """A group that is not configured; ``nearest`` are names that look like it."""

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        self.name, self.nearest = name, tuple(nearest)
        hint = f"did you mean {', '.join(self.nearest)}?" if self.nearest else "headway mode lists the configured ones"
        super().__init__(f"no group {name!r}; {hint}")


class Forbidden(HeadwayError):
    """A token is missing or wrong."""


class NotReady(HeadwayError):
    """Something that the request needs is not there yet."""


def one_line(error: Exception) -> str:
    """Return what a user reads of an error: our own messages as they are, others with their origin.

    What brokers that are away, move or refuse make of a call is their state and never called a fault of ours.

    Examples
    --------
    >>> one_line(FileNotFoundError(2, "No such file or directory", "trace.csv"))
    'trace.csv: No such file or directory'
    """
    from balancer.errors import BalancerError
    from balancer.observers.brokers import brokers_say
    from forecaster.errors import ForecasterError

    text = " ".join(str(error).split())
    if isinstance(error, ForecasterError | BalancerError | HeadwayError):
        return text
    if (state := brokers_say(error)) is not None:
        return state
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        remedy = "; make room, then run it again" if error.errno in _FULL else ""
        return f"{where}{error.strerror}{remedy}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{error.name} is not installed; pip install 'headway[{_extra_of(error.name)}]' brings it"
    return f"unexpected {type(error).__name__}: {text}; this is a fault of ours, python -X dev -m headway … shows where"


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_EXTRAS = {
    "confluent_kafka": "kafka",
    "kafka": "kafka",
    "datasketches": "kafka",
    "grpc": "scaler",
    "cryptography": "kubernetes",
    "bokeh": "page",
    "pyarrow": "parquet",
    "distributed": "dask",
    "ray": "ray",
}


def _extra_of(module: str) -> str:
    return _EXTRAS.get(module.partition(".")[0], "dev")

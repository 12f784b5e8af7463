"""Everything that ``forecaster`` raises, drawn as one tree.

::

    ForecasterError              catch this to catch them all
    ├── InputRefused             a file, row or argument that cannot be used; names the place and the remedy
    ├── ArtefactRefused          a model artefact that must not be loaded (hash, version, half-written)
    ├── StoreError
    │   ├── StoreUnavailable     no answer from the store; try again, nothing was lost
    │   ├── StoreRefused         the store answered "no": eviction policy, read-only replica, out of memory
    │   └── SampleRejected       a tick outside the accepted window (too late, or in the future)
    └── SourceError
        ├── SourceUnavailable    no answer from Kafka, Prometheus…; the last good value keeps its age
        └── SourceRefused        wrong credentials, unknown topic, missing permission

"Not enough history" is a result (:class:`forecaster.forecast.NoForecast`), never an exception.
"""

from __future__ import annotations


class ForecasterError(Exception):
    """Root of the tree; the message is one line that says what happened and what to do."""


class InputRefused(ForecasterError):
    """Input that cannot be used. The message names file, line and value, and the remedy."""


class ArtefactRefused(ForecasterError):
    """A model artefact that must not be loaded; the message names the file and the remedy."""


class StoreError(ForecasterError):
    """The series store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store did not answer. Nothing acknowledged is lost; the call may be repeated."""


class StoreRefused(StoreError):
    """The store answered, and refuses: eviction policy, read-only replica, out of memory."""


class SampleRejected(StoreError):
    """A tick outside the window that the store accepts; writing it would harm the history."""


class SourceError(ForecasterError):
    """An offset source could not do what was asked."""


class SourceUnavailable(SourceError):
    """The source did not answer; hold the last good value with its age."""


class SourceRefused(SourceError):
    """The source answered, and refuses: credentials, permissions, an unknown topic."""

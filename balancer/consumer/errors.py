"""What a planned consumer raises, drawn as one tree below :class:`balancer.errors.BalancerError`.

::

    ConsumerError
    ├── SettingsRefused       a setting that cannot be meant: field, value, bound
    ├── HandlerMisuse         the handler returned what it may not
    ├── RecordRefused         a record failed for good, and the policy says stop
    ├── StartUnknown          no committed offset, and the policy says not to guess
    ├── OffsetsUnread         committed offsets did not come in time: asked again later
    ├── BrokerRefused         the broker says no: permissions, authentication
    ├── SinkAhead             the sink has been written at a higher epoch than the one granted
    ├── TransactionAborted    the open transaction is void; its records are run again
    │   └── OffsetsNotCommitted   results last, offsets do not yet: they are committed again
    └── WorkerFenced          this life is over: end the process and start a new one
"""

from __future__ import annotations

from balancer.errors import BalancerError


class ConsumerError(BalancerError):
    """Root of what a planned consumer raises."""


class SettingsRefused(ConsumerError):
    """A setting that cannot be meant; the message names field, value and bound."""


class HandlerMisuse(ConsumerError):
    """The handler returned what it may not; the message says what it may return."""


class RecordRefused(ConsumerError):
    """A record failed for good and the policy is to stop; the message names topic, partition and offset."""


class OffsetsUnread(ConsumerError):
    """Committed offsets did not come in time; the partitions wait, and all others go on."""


class StartUnknown(ConsumerError):
    """A partition has no committed offset and the settings say not to guess one."""


class BrokerRefused(ConsumerError):
    """The broker refuses: the message names the right that is missing."""


class SinkAhead(ConsumerError):
    """The sink has seen a higher epoch than the one that was granted; reported, never overwritten."""


class TransactionAborted(ConsumerError):
    """The open transaction is void; records since the last commit are run again."""


class OffsetsNotCommitted(TransactionAborted):
    """Results last, their offsets do not yet; nothing is run again, the offsets are committed again."""


class WorkerFenced(ConsumerError):
    """No more commits from here: end the process, and start a new life."""

"""What routed producers and the leader of a routed topic raise, drawn as one tree below ``BalancerError``.

::

    BalancerError
    ├── TableRefused              a slot table that must not be used (balancer.routing.table)
    └── RoutingError
        ├── RouteSettingsRefused  a setting that cannot be meant: field, value, bound
        ├── RouteStoreUnavailable nobody answers at the route store; no transition advances meanwhile
        ├── RegistrationRefused   another life of the same name has registered
        ├── TableLogUnavailable   the compacted table topic cannot be read or written now
        ├── NotRouted             the topic has no slot table: adopt it first
        ├── LeaderSuperseded      somebody else leads the topic now; its write was refused by the broker
        └── SplitRefused          a split or merge that must not be done; the message says why and what would help

A producer that must not guess raises :class:`RouteStale`, a ``BufferError``: poll and try again, as with a full queue.
"""

from __future__ import annotations

from balancer.errors import BalancerError


class RoutingError(BalancerError):
    """Root of what routing raises."""


class RouteSettingsRefused(RoutingError):
    """A setting that cannot be meant; the message names field, value and bound."""


class RouteStoreUnavailable(RoutingError):
    """The route store did not answer."""


class RegistrationRefused(RoutingError):
    """A producer of the same name has registered after this one."""


class TableLogUnavailable(RoutingError):
    """The compacted topic that holds the slot tables could not be read or written."""


class NotRouted(RoutingError):
    """A topic without a slot table."""


class LeaderSuperseded(RoutingError):
    """A later leader has initialised the topic's transactional id; this one writes no more."""


class SplitRefused(RoutingError):
    """A split or merge that is refused; flow continues on the table as it is."""


class RouteStale(BufferError):
    """The table may be old, or a slot is held and the buffer is full: poll, and produce again."""

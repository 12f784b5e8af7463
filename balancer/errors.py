"""Everything that ``balancer`` raises, drawn as one tree.

::

    BalancerError                catch this to catch them all
    ├── PolicyRefused            a policy that cannot be meant: field, value, bound
    ├── PlanStoreUnavailable     no answer from the plan store; try again
    ├── StaleLeader              somebody with a newer fencing token leads this group now
    ├── ObserverUnavailable      the group cannot be seen; hold
    └── ActuationError
        ├── TargetUnavailable    the target did not answer; hold and try again
        ├── TargetRefused        permission, schema, no such target; the message says what to do
        └── ForeignWriter        somebody else changes the same target

An error never scales anything down: whoever catches one holds what is there.
"""

from __future__ import annotations


class BalancerError(Exception):
    """Root of the tree; the message is one line that says what happened and what to do."""


class PolicyRefused(BalancerError):
    """A policy that cannot be meant. The message names field, value and bound."""


class PlanStoreUnavailable(BalancerError):
    """The plan store did not answer."""


class StaleLeader(BalancerError):
    """A write with an old fencing token; somebody else leads this group now."""


class ObserverUnavailable(BalancerError):
    """The group cannot be seen at the moment."""


class ActuationError(BalancerError):
    """A plan could not be carried out."""


class TargetUnavailable(ActuationError):
    """The target did not answer; hold, and try again."""


class TargetRefused(ActuationError):
    """The target refuses: permission, schema, no such object."""


class ForeignWriter(ActuationError):
    """Another writer changes the same target; back off and report."""

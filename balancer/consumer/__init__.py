"""Planned consumers: runs inside users' services, imports nothing heavy.

>>> from balancer.consumer import PlannedConsumer, WorkerSettings
"""

from __future__ import annotations

from balancer.consumer.errors import ConsumerError, HandlerMisuse, SettingsRefused, WorkerFenced
from balancer.consumer.failures import FailurePolicy, GiveUp
from balancer.consumer.planned import PlannedConsumer
from balancer.consumer.records import Record, idempotence_key
from balancer.consumer.settings import Mode, StartAt, WorkerSettings

__all__ = [
    "ConsumerError",
    "FailurePolicy",
    "GiveUp",
    "HandlerMisuse",
    "Mode",
    "PlannedConsumer",
    "Record",
    "SettingsRefused",
    "StartAt",
    "WorkerFenced",
    "WorkerSettings",
    "idempotence_key",
]

"""What is wrong, and what to do about it: checks of everything that Headway leans on.

Each check is independent: one that fails or hangs on a dead peer does not hide the others.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forecaster.topics import GroupId
from headway.configuration.settings import Settings
from headway.errors import one_line
from headway.operation.targets import Check, external_metrics_check, scaler_check, target_checks

if TYPE_CHECKING:
    from forecaster.ingest.base import OffsetSource
    from forecaster.stores.base import SeriesStore

CLOCK_TOLERANCE_S = 2.0


Probe = Callable[[], Iterator[Check]]


def examine(
    settings: Settings, open_store: Callable[[], SeriesStore], open_source: Callable[[], OffsetSource] | None = None
) -> list[Check]:
    """Run all checks.

    Parameters
    ----------
    settings
        What was configured.
    open_store
        Opens the configured store, and raises our own errors where it cannot.
    open_source
        Opens the source of offsets; None where arrivals come from files or by push.
    """
    probes: list[tuple[str, Probe]] = [
        ("settings", lambda: _settings(settings)),
        ("store", lambda: _store(settings, open_store)),
        ("brokers", lambda: _brokers(settings)),
        ("source", lambda: _source(settings, open_source)),
        ("planned groups", lambda: _planned(settings)),
        ("models", lambda: _models(settings)),
        ("targets", lambda: _targets(settings)),
        ("api", lambda: _api(settings)),
    ]
    found: list[Check] = []
    for name, probe in probes:
        try:
            found += probe()
        except Exception as error:
            found.append(Check(name, False, one_line(error), "the message says what to change"))
    return found


def _settings(settings: Settings) -> Iterator[Check]:
    groups = settings.named_groups
    if settings.groups:
        yield Check("settings", True, f"{len(groups)} groups, {len(settings.groups) - len(groups)} patterns")
    else:
        yield Check("settings", True, "no group is configured", "add [groups.<name>] to headway.toml, or headway init")
    for name in groups:
        capacity = settings.policy(name).capacity_per_member
        if capacity is None:
            yield Check(f"group {name}", True, "capacity_per_member is not given and will be learned from busy hours")


def _store(settings: Settings, open_store: Callable[[], SeriesStore]) -> Iterator[Check]:
    where = settings.store_place
    started = time.perf_counter()
    try:
        store = open_store()
    except Exception as error:
        yield Check("store", False, one_line(error), "start the server, or correct store.url in headway.toml")
        return
    try:
        health = store.health()
        took = (time.perf_counter() - started) * 1000
        yield Check("store", True, f"{where}: {health.kind} {health.version}, layout {health.layout}, {took:.0f} ms")
        for warning in health.warnings:
            yield Check("store", False, warning, "change the server's settings as said, then run doctor again")
        now = getattr(store, "now", None)
        if callable(now):
            yield _clock(now())
    finally:
        store.close()


def _clock(there: datetime) -> Check:
    skew = (datetime.now(UTC) - there).total_seconds()
    if abs(skew) <= CLOCK_TOLERANCE_S:
        return Check("clock", True, f"agrees with the store's within {abs(skew):.1f} s")
    return Check("clock", False, f"{skew:+.1f} s against the store's", "let NTP set the clocks of both machines")


def _brokers(settings: Settings) -> Iterator[Check]:
    servers = settings.kafka.bootstrap_servers
    if not servers:
        from_where = settings.prometheus.url or "files or by push"
        yield Check("brokers", True, f"none configured: arrivals come from {from_where}")
        return
    reached = []
    for server in servers.split(","):
        host, port = _host_and_port(server.strip())
        try:
            with socket.create_connection((host, port), timeout=3):
                reached.append(server.strip())
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            remedy = "start the broker, or correct kafka.bootstrap_servers (host:port, comma-separated)"
            yield Check("brokers", False, f"{server.strip()}: {why}", remedy)
    if reached:
        yield Check("brokers", True, f"{', '.join(reached)} accept connections")


def _host_and_port(server: str) -> tuple[str, int]:
    """Return where a broker listens; clients take 9092 where no port is said.

    Examples
    --------
    >>> _host_and_port("kafka-1:9093"), _host_and_port("kafka-1"), _host_and_port("[::1]:9093")
    (('kafka-1', 9093), ('kafka-1', 9092), ('::1', 9093))
    """
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = server, "9092"
    return host.strip("[]"), int(port)


def _source(settings: Settings, open_source: Callable[[], OffsetSource] | None) -> Iterator[Check]:
    """Look once at every configured topic and group, as the record job would."""
    if open_source is None:
        return
    from forecaster.ingest.checks import check_source

    groups = {GroupId(name): own.topics for name in settings.named_groups if (own := settings.group(name)) is not None}
    source = open_source()
    try:
        if settings.patterns:
            yield from _patterns(settings, source, groups)
        for finding in check_source(source, groups):
            yield Check(finding.name, finding.ok, finding.detail, finding.remedy)
    finally:
        source.close()


def _planned(settings: Settings) -> Iterator[Check]:
    from headway.operation.doctor_planned import findings

    for finding in findings(settings):
        yield Check(*finding)


def _patterns(settings: Settings, source: OffsetSource, groups: dict[GroupId, tuple[str, ...]]) -> Iterator[Check]:
    """Say which groups each pattern fits, and have them looked at too; brokers that are away are told by that look."""
    from forecaster.errors import SourceError
    from headway.work.discovery import fitting

    kinds, topics_of = getattr(source, "kinds", None), getattr(source, "topics_of", None)
    if kinds is None or topics_of is None:
        return
    try:
        known = kinds()
    except SourceError:
        return
    for pattern, fits in fitting(settings, known).items():
        if not fits:
            remedy = f"correct [groups.{pattern!r}], or wait until such a group has members or commits"
            yield Check(f"pattern {pattern}", False, f"fits none of the cluster's {len(known)} groups", remedy)
            continue
        yield Check(f"pattern {pattern}", True, f"fits {', '.join(fits)}")
        for name in fits:
            own = settings.group(name)
            topics = (own.topics if own is not None else ()) or tuple(topics_of(GroupId(name)))
            if topics:
                groups[GroupId(name)] = topics
            else:
                remedy = f"give groups.{pattern!r}.topics"
                yield Check(f"group {name}", False, f"which topics {name} reads is not known", remedy)


def _models(settings: Settings) -> Iterator[Check]:
    folder = settings.model_folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".doctor-{os.getpid()}"
        trial.write_text("")
        trial.unlink()
    except OSError as error:
        yield Check("models", False, f"{folder}: {error.strerror}", "make the folder writable, or set models.path")
        return
    from forecaster.errors import ArtefactRefused
    from headway.wiring import open_registry

    registry, refused, good = open_registry(settings), 0, 0
    for stream in registry.streams():
        version = registry.current(stream)
        if version is None:
            continue
        try:
            registry.load(stream, version)
            good += 1
        except ArtefactRefused as error:
            refused += 1
            yield Check("models", False, str(error), f"headway train --topic {stream.topic} makes a new one")
    if not refused:
        yield Check("models", True, f"{folder} is writable and holds {good} current model{'s' * (good != 1)}")


def _targets(settings: Settings) -> Iterator[Check]:
    for name in settings.named_groups:
        yield from target_checks(settings, name)
    yield from scaler_check(settings)
    yield from external_metrics_check(settings)


def _api(settings: Settings) -> Iterator[Check]:
    from headway.api.server import tokens

    read, write = tokens(settings)
    guarded = "with tokens" if read and write else "without tokens, loopback only"
    yield Check("api", True, f"{settings.api.host}:{settings.api.port} {guarded}")

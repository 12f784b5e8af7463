"""headway init: a first configuration, from what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import sources
from headway.cli.options import writable
from headway.cli.output import Json, bar, emit_json, emit_table, say

if TYPE_CHECKING:
    from headway.configuration.initial import SeenGroup
    from headway.configuration.settings import Settings

EXAMPLE = "headway init --brokers 127.0.0.1:9092"
STOPPED = "no file was written unless a line above says so"


def command(
    brokers: Annotated[str | None, typer.Option(help="host:port by commas; asked for on a terminal.")] = None,
    store: Annotated[str | None, typer.Option(help="redis:// URL, or embedded; asked for on a terminal.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="A group to watch, again for more; all by default.")] = None,
    property: Annotated[list[str] | None, typer.Option(help="A client property: security.protocol=SSL.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="URL of a server that scrapes a Kafka exporter.")] = None,
    history: Annotated[str, typer.Option(help="How much of its history to load.")] = "28d",
    seconds: Annotated[float, typer.Option(min=1, max=300, help="Between two looks, to tell rates.")] = 5.0,
    timezone: sources.Timezone = "UTC",
    out: Annotated[Path, typer.Option(help="Where to write.", callback=writable)] = Path("headway.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a first configuration by asking what is there.

    Looks at the cluster twice, lists its groups with lag and arrival rates, and writes a commented headway.toml in
    which nothing acts: mode recommend. What is not given as an option is asked on a terminal. With --prometheus the
    history that a Kafka exporter left there is loaded into the store, so that forecasts start with weeks behind them.
    A password comes from HEADWAY_KAFKA__PASSWORD or a file, never from here.
    """
    import sys

    from headway.configuration.initial import chosen, configuration, look
    from headway.configuration.settings import load
    from headway.errors import HeadwayError, SettingsRefused

    asks = sys.stdin.isatty() and sys.stderr.isatty() and not json
    if out.exists() and not force:
        raise HeadwayError(f"{out} is there already; look at it with headway doctor, or replace it with --force")
    if brokers is None:
        if not asks:
            raise typer.BadParameter("there is no terminal to ask on; give host:port", param_hint="--brokers")
        brokers = _ask("Kafka brokers", "127.0.0.1:9092")
    if not brokers.strip():
        raise typer.BadParameter("no broker is named; give host:port, by commas", param_hint="--brokers")
    properties = _properties(property or [])
    _zone(timezone)
    if store is None and asks:
        store = _ask("Store (redis:// URL, or embedded)", "embedded")
    url = None if store in (None, "", "embedded") else store
    settings = _settings(brokers, url, properties)
    _check_store(settings)
    groups = _groups(settings, look, seconds, group or [])
    _list(groups)
    if asks and not group and groups:
        while True:
            try:
                groups = chosen(groups, _ask("Watch which (numbers, names, all)", "all"))
                break
            except ValueError as wrong:
                say(str(wrong))
    text = configuration(groups, brokers=brokers, store=url, properties=properties, timezone=timezone)
    if asks and prometheus is None:
        answer = _ask("Prometheus with a Kafka exporter's history (URL, or none)", "none")
        prometheus = None if answer == "none" else answer
    out.write_text(text, encoding="utf-8")
    try:
        written = load(out)
    except SettingsRefused:
        out.unlink()
        raise
    say(f"written: {out}")
    loaded = _load_history(written, prometheus, history) if prometheus else {}
    steps = _next(out, groups, loaded)
    if json:
        emit_json({"file": str(out), "groups": [_row(g) for g in groups], "history": loaded, "next": steps})
        return
    for line in steps:
        typer.echo(line)


def _ask(what: str, default: str) -> str:
    try:
        return str(typer.prompt(what, default=default, err=True))
    except typer.Abort:
        raise KeyboardInterrupt from None


def _properties(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not name=value", param_hint="--property")
        found[name.strip()] = value.strip()
    return found


def _zone(name: str) -> None:
    from forecaster.timegrid import TimeGrid

    try:
        TimeGrid(60, name)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--timezone") from wrong


def _settings(brokers: str, url: str | None, properties: dict[str, str]) -> Settings:
    """Return settings of the cluster and store that are asked about; the environment's secrets hold."""
    import os
    from tempfile import TemporaryDirectory

    from headway.configuration.initial import configuration
    from headway.configuration.settings import load
    from headway.errors import SettingsRefused

    with TemporaryDirectory() as folder:
        file = Path(folder) / "headway.toml"
        file.write_text(configuration([], brokers=brokers, store=url, properties=properties), encoding="utf-8")
        try:
            return load(file, {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_GROUPS")})
        except SettingsRefused as wrong:  # the file is a passing one of ours: what it says came from options
            raise SettingsRefused(str(wrong).removeprefix(f"{file}: ")) from wrong


def _check_store(settings: Settings) -> None:
    from headway.wiring import open_series

    url = settings.store_url()
    if url is None:
        return
    store = open_series(settings, url)
    try:
        health = store.health()
        say(f"store: {health.kind} {health.version}, layout {health.layout}")
        for warning in health.warnings:
            say(f"store: {warning}")
    finally:
        store.close()


def _groups(settings: Settings, look: Any, seconds: float, only: list[str]) -> list[SeenGroup]:
    import difflib
    import time

    from headway.errors import HeadwayError
    from headway.wiring import open_source

    source = open_source(settings)
    try:
        with bar(f"looking twice, {seconds:g} s apart"):
            found: list[SeenGroup] = look(source, lambda: time.sleep(seconds), only)
        absent = [name for name in only if name not in {g.name for g in found}]
        if absent:
            near = difflib.get_close_matches(absent[0], [str(name) for name in source.kinds()], n=1)
            hint = f"did you mean {near[0]}?" if near else "headway init without --group lists them"
            raise HeadwayError(f"the cluster knows no group {absent[0]!r}; {hint}")
    finally:
        source.close()
    return found


def _row(group: SeenGroup) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(group)


def _list(groups: list[SeenGroup]) -> None:
    import contextlib
    import sys

    if not groups:
        say("the cluster has no consumer group yet: start your consumers and run headway init again,")
        say("or add [groups.<name>] with its topics to the file by hand")
        return
    rows: list[list[object]] = [
        [
            k,
            g.name,
            g.kind,
            ", ".join(g.topics) or None,
            g.partitions or None,
            g.lag,
            g.arrivals,
            g.consumed,
            g.why or "",
        ]
        for k, g in enumerate(groups, 1)
    ]
    heads = ["", "group", "kind", "topics", "partitions", "lag", "arrive/s", "read/s", ""]
    with contextlib.redirect_stdout(sys.stderr):
        emit_table(heads, rows)


def _load_history(settings: Settings, prometheus: str, history: str) -> dict[str, Any]:
    from datetime import timedelta

    from forecaster.errors import ForecasterError
    from forecaster.ingest.prometheus import PrometheusSource, backfill
    from headway.wiring import open_series, store_url, utc_now

    span, now = sources.duration(history, "--history"), utc_now()
    topics = sorted({topic for name in settings.named_groups if (own := settings.group(name)) for topic in own.topics})
    loaded: dict[str, Any] = {}
    source = PrometheusSource(prometheus)
    try:
        with store_url(settings) as url:
            store = open_series(settings, url)
            try:
                for topic in topics:
                    say(f"{topic}: loading {history} from {source.url} …")
                    try:
                        done = backfill(store, source, topic, now - span, now - timedelta(minutes=2))
                    except ForecasterError as error:
                        loaded[topic] = {"known": 0.0, "why": str(error)}
                        say(f"{topic}: {error}")
                        continue
                    loaded[topic] = {"known": done.known, "steps": done.steps, "partitions": done.partitions}
                    say(f"{topic}: {done.partitions} partitions, {done.known:.0%} of {history} known")
            finally:
                store.close()
    finally:
        source.close()
    return loaded


def _next(file: Path, groups: list[SeenGroup], loaded: dict[str, Any]) -> list[str]:
    """Return what to do next, and when what will work."""
    from datetime import timedelta

    from headway.wiring import utc_now

    config = "" if file == Path("headway.toml") else f" --config {file}"
    known = [topic for topic, done in loaded.items() if done["known"] > 0]
    lines = [
        f"headway doctor{config}     checks store, brokers, topics and permissions",
        f"headway serve{config}      records, forecasts and plans; nothing acts in mode recommend",
        f"headway watch{config}      the groups, live in the terminal",
    ]
    if known:
        lines.append(f"Forecasts begin with the first minute: {', '.join(known)} have history in the store.")
    elif groups:
        day, week = utc_now() + timedelta(days=1), utc_now() + timedelta(days=9)
        lines.append(
            f"Forecasts begin with the last value, know the day's shape from {day:%a %d %b %H:%M} UTC on, and "
            f"headway report can judge them from {week:%a %d %b} on; --prometheus URL or headway import loads history."
        )
    return lines

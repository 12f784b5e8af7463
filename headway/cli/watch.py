"""headway watch: the groups, live in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.options import Config
from headway.cli.output import Json, emit_json

if TYPE_CHECKING:
    import httpx

EXAMPLE = "headway watch --once"
HINT = "j k ↓ ↑ choose a group · q ends"
KEYS = {"j": 1, "k": -1, "\x1b[B": 1, "\x1b[A": -1}


def command(
    url: Annotated[str | None, typer.Option(help="Of the server; the settings' own by default.")] = None,
    every: Annotated[str, typer.Option(help="How often to look.")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="Print one look and end; so does a pipe.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Watch the groups live in the terminal.

    Shows what the page's overview shows, over the HTTP interface of a running headway serve or headway demo: state,
    arrivals of the last day, members working / requested / planned, what comes next and why, delay, lag and mode. j and
    k or the arrows choose the group whose reasons stand below; q ends. The read token is taken from the settings, or
    from HEADWAY_API__READ_TOKEN.
    """
    import sys

    import httpx

    from headway.cli.sources import duration
    from headway.configuration.settings import load, secret

    settings = load(config)
    api = settings.api
    token = secret(api.read_token, api.read_token_file)
    host = "127.0.0.1" if api.host in ("0.0.0.0", "::") else api.host
    name = f"[{host}]" if ":" in host else host
    where = url or f"{'https' if api.tls_certificate else 'http'}://{name}:{api.port}"
    seconds = max(duration(every, "--every").total_seconds(), 0.2)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=where.rstrip("/"), headers=headers, timeout=10) as client:
        first = _look(client, where)
        if json:
            emit_json(first)
        elif once or not sys.stdout.isatty():
            _print(first)
        else:
            _live(client, where, first, seconds)


def _look(client: httpx.Client, where: str) -> dict[str, Any]:
    """Return the overview, or raise one line that says what to do."""
    import httpx

    from headway.errors import HeadwayError

    try:
        answer = client.get("/v1/overview")
    except httpx.HTTPError as error:
        raise HeadwayError(
            f"{where} does not answer ({str(error) or type(error).__name__}); start headway serve or headway demo "
            f"there, or name another with --url"
        ) from error
    if answer.status_code == 401:
        raise HeadwayError(
            f"{where} wants a read token: set HEADWAY_API__READ_TOKEN, or api.read_token_file in headway.toml"
        )
    if answer.status_code != 200:
        raise HeadwayError(f"{where} answers {answer.status_code}; is it this version of Headway? {answer.text[:200]}")
    document: dict[str, Any] = answer.json()
    return document


def _print(document: dict[str, Any]) -> None:
    import shutil

    from rich.console import Console

    from headway.status.watching import screen

    width = shutil.get_terminal_size((140, 40)).columns
    Console(width=width).print(screen(document, width=width, selected=0))


def _live(client: httpx.Client, where: str, document: dict[str, Any], seconds: float) -> None:
    import time

    from rich.console import Console
    from rich.live import Live

    from headway.cli.keys import pressed, raw_keys
    from headway.errors import HeadwayError
    from headway.status.watching import screen

    console, selected, trouble = Console(), 0, None
    good = time.monotonic()
    with raw_keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        due = time.monotonic() + seconds
        while True:
            shown = screen(document, selected=selected, trouble=trouble, width=console.width, keys=HINT)
            live.update(shown, refresh=True)
            key = pressed(keys, max(due - time.monotonic(), 0.0))
            if key in ("q", "\x03", "\x04"):
                return
            selected = min(max(selected + KEYS.get(key or "", 0), 0), max(len(document["groups"]) - 1, 0))
            if time.monotonic() < due:
                continue
            try:
                document, trouble, good = _look(client, where), None, time.monotonic()
            except HeadwayError as error:
                trouble = f"not up to date since {time.monotonic() - good:.0f} s: {error}; asking again"
            due = time.monotonic() + seconds

"""The page: static files of ours, and Bokeh's JavaScript straight from its installed wheel, sent compressed."""

from __future__ import annotations

import base64
import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

from forecaster.errors import StoreError
from headway.api.first_paint import painted
from headway.api.groups import App
from headway.api.problems import problem
from headway.application import Application
from headway.status.overview import overview
from headway.status.wire import encode

FOLDER = Path(__file__).parents[1] / "page"
_CSP = (
    "default-src 'self'; script-src 'self' 'sha256-{theme}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_STYLE, _THEME = b'<link rel="stylesheet" href="/page/style.css">', b'<script src="/page/theme.js"></script>'
_BOKEH = {"bokeh.js": "bokeh.min.js", "bokeh-api.js": "bokeh-api.min.js"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
EMBEDDED_GROUPS = 50
"""With more groups than these the page asks for them after its first paint."""


@dataclass(frozen=True, slots=True)
class _File:
    plain: bytes
    packed: bytes
    tag: str


@cache
def _load(file: Path, changed_ns: int) -> _File:
    plain = file.read_bytes()
    return _File(plain, gzip.compress(plain, 9, mtime=0), f'"{hashlib.sha256(plain).hexdigest()[:20]}"')


def bokeh_script(name: str) -> Path | None:
    """Return one of Bokeh's browser scripts; None if the ``page`` extra is not installed."""
    spec = find_spec("bokeh")
    if spec is None or not spec.submodule_search_locations:
        return None
    script = Path(spec.submodule_search_locations[0]) / "server" / "static" / "js" / name
    return script if script.exists() else None


def _sent(request: Request, file: Path, kept: str) -> Response:
    found = _load(file, file.stat().st_mtime_ns)
    headers = {"Cache-Control": kept, "ETag": found.tag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(None, 304, headers)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(found.packed if packed else found.plain, 200, headers, _TYPES[file.suffix])


def with_overview(html: bytes, app: Application) -> bytes:
    """Return the page with the overview in it, to be read at once and as data: the first paint waits for nothing.

    A server that wants a token embeds nothing: the page itself is open to everybody.
    """
    api = app.settings.api
    if api.read_token is not None or api.read_token_file is not None or len(app.board.names) > EMBEDDED_GROUPS:
        return html
    try:
        document = overview(app, app.clock())
    except StoreError:
        return html
    data = b'<script type="application/json" id="first">' + encode(document).replace(b"<", b"\\u003c") + b"</script>"
    return painted(html, document).replace(b"<!--first-->", data, 1)


@cache
def _shell(changed_ns: tuple[int, ...]) -> tuple[bytes, str]:
    """Return the document with its style and theme inside, so that the first paint asks for nothing more, and its CSP.

    Modules are named ahead: a browser finds them all in the head instead of one behind the other.
    """
    theme = (FOLDER / "theme.js").read_bytes()
    ahead = "".join(f'<link rel="modulepreload" href="/page/{name}">\n' for name in _modules()).encode()
    html = (FOLDER / "index.html").read_bytes()
    html = html.replace(_STYLE, b"<style>" + (FOLDER / "style.css").read_bytes() + b"</style>", 1)
    html = html.replace(_THEME, b"<script>" + theme + b"</script>\n" + ahead.rstrip(), 1)
    return html, _CSP.format(theme=base64.b64encode(hashlib.sha256(theme).digest()).decode())


def _modules() -> list[str]:
    return sorted(file.name for file in FOLDER.glob("*.js") if file.name not in ("app.js", "theme.js"))


def mount_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files under ``/page``."""

    @app.get("/", include_in_schema=False)
    def index(app: App, request: Request) -> Response:
        html, policy = _shell(tuple(file.stat().st_mtime_ns for file in sorted(FOLDER.iterdir())))
        html = with_overview(html, app)
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            html = gzip.compress(html, 5, mtime=0)
        return Response(html, 200, headers, "text/html; charset=utf-8")

    @app.get("/page/{name}", include_in_schema=False)
    def file(name: str, request: Request) -> Response:
        if name in _BOKEH:
            script = bokeh_script(_BOKEH[name])
            if script is None:
                return problem(404, "No charts", "pip install 'headway[page]' brings Bokeh; tables work without it")
            return _sent(request, script, "max-age=86400")
        own = FOLDER / name
        if own.parent != FOLDER or own.suffix not in _TYPES or not own.is_file():
            return problem(404, "Not found", "the page has no such file")
        return _sent(request, own, "no-cache")

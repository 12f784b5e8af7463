"""The page: static files of ours, and Bokeh's JavaScript straight from its installed wheel."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response

from headway.api.problems import problem

FOLDER = Path(__file__).parents[1] / "page"
_CSP = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_BOKEH = {"bokeh.js": "bokeh.min.js", "bokeh-api.js": "bokeh-api.min.js"}
_FILES = {"app.js": "text/javascript", "charts.js": "text/javascript", "style.css": "text/css"}


def bokeh_script(name: str) -> Path | None:
    """Return one of Bokeh's browser scripts; None if the ``page`` extra is not installed."""
    spec = find_spec("bokeh")
    if spec is None or not spec.submodule_search_locations:
        return None
    script = Path(spec.submodule_search_locations[0]) / "server" / "static" / "js" / name
    return script if script.exists() else None


def mount_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files under ``/page``."""

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(
            FOLDER / "index.html", headers={"Content-Security-Policy": _CSP, "Cache-Control": "no-cache"}
        )

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name in _BOKEH:
            script = bokeh_script(_BOKEH[name])
            if script is None:
                return problem(404, "No charts", "pip install 'headway[page]' brings Bokeh; tables work without it")
            return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})
        if name not in _FILES:
            return problem(404, "Not found", "the page has no such file")
        return FileResponse(FOLDER / name, media_type=_FILES[name], headers={"Cache-Control": "no-cache"})

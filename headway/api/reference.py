"""The API's reference at ``/docs``, written from the OpenAPI document itself: works offline, loads nothing."""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response


def mount_reference(app: FastAPI) -> None:
    """Serve the reference."""

    @app.get("/docs", include_in_schema=False)
    async def reference() -> Response:
        return HTMLResponse(render(app.openapi()))


def render(document: dict[str, Any]) -> str:
    """Return the reference of an OpenAPI document as one HTML page.

    Examples
    --------
    >>> page = render({"info": {"title": "T", "version": "1"}, "paths": {"/x": {"get": {"summary": "A <b>"}}}})
    >>> "GET" in page, "A &lt;b&gt;" in page
    (True, True)
    """
    info, blocks = document["info"], []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            blocks.append(_operation(path, method, operation))
    title = escape(f"{info['title']} {info['version']}: HTTP interface")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page/style.css"></head>'
        f"<body><main><h1>{title}</h1><p>{escape(info.get('description', ''))} "
        'The same as a document: <a href="/openapi.json">/openapi.json</a>. <a href="/">Back to the page</a>.</p>'
        f"{''.join(blocks)}</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", [])
    )
    table = (
        f"<table><thead><tr><th>parameter</th><th>in</th><th>meaning</th></tr></thead>{rows}</table>" if rows else ""
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = str(body.get("$ref", "")).rpartition("/")[2]
    body_text = f"<p>Body: <code>{escape(name or 'JSON object')}</code></p>" if body else ""
    return (
        f"<section><h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p><strong>{escape(operation.get('summary', ''))}.</strong> {escape(operation.get('description', ''))}</p>"
        f"{table}{body_text}</section>"
    )

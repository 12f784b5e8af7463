"""A Prometheus HTTP API over samples that a test lays down: the shapes of the real answers, on a real socket."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

Labels = tuple[tuple[str, str], ...]


class Prometheus:
    """Answers ``/api/v1/query`` for range selectors such as ``metric{topic=~"a|b",group="g"}[300s]``."""

    def __init__(self) -> None:
        self.series: dict[Labels, list[tuple[float, float]]] = {}
        self.fail_with: tuple[int, str] | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                status, body = outer.fail_with or (200, outer.answer(form["query"][0], float(form["time"][0])))
                raw = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def put(self, metric: str, labels: Mapping[str, str], *samples: tuple[float, float]) -> None:
        """Lay down samples of a series, times in seconds."""
        key = (("__name__", metric), *sorted(labels.items()))
        self.series.setdefault(key, []).extend(samples)

    def answer(self, query: str, at: float) -> str:
        """Return what Prometheus would."""
        parsed = re.fullmatch(r"(\w+)\{(.*)\}\[(\d+)s\]", query)
        if parsed is None:
            return json.dumps({"status": "error", "errorType": "bad_data", "error": f"parse error: {query}"})
        metric, inside, window = parsed[1], parsed[2], float(parsed[3])
        matchers = re.findall(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"', inside)
        result = []
        for key, samples in self.series.items():
            labels = dict(key)
            wanted = labels["__name__"] == metric and all(
                re.fullmatch(value.replace("\\\\", "\\"), labels.get(name, ""))
                if kind == "=~"
                else labels.get(name, "") == value
                for name, kind, value in matchers
            )
            points = [[t, str(v)] for t, v in sorted(samples) if at - window < t <= at]
            if wanted and points:
                result.append({"metric": labels, "values": points})
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})

    def __enter__(self) -> Prometheus:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""Who changed what, and when: an append-only log of operators' actions, one JSON line each."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.status.wire import instant, parse_instant

KEPT = 1000


class Audit:
    """An append-only file in the state folder; without a folder it lives in memory alone.

    A line that a crash cut short is passed over when the log is read again.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        if file is not None and file.exists():
            for line in file.read_text("utf-8", errors="replace").splitlines()[-KEPT:]:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    self._recent.append(entry)

    def write(self, at: datetime, actor: str, action: str, scope: str, detail: dict[str, Any]) -> None:
        """Append an entry; on disk before this returns."""
        entry = {"at": instant(at), "actor": actor, "action": action, "scope": scope, "detail": detail}
        with self._lock:
            self._recent.append(entry)
            if self._file is None:
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry, allow_nan=False) + "\n")
                log.flush()
                os.fsync(log.fileno())

    def entries(self, since: datetime | None = None, limit: int = KEPT) -> list[dict[str, Any]]:
        """Return the newest entries from ``since`` on, oldest first."""
        with self._lock:
            kept = list(self._recent)
        if since is not None:
            kept = [e for e in kept if parse_instant(e["at"]) >= since]
        return kept[-limit:]

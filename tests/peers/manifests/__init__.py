"""Kustomize and the Prometheus operator's own types, built from Go modules, for checking what ``deploy/`` holds."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.peers.kube.cluster import CACHE, go

HERE = Path(__file__).resolve().parent
KEDA = "github.com/kedacore/keda/v2@v2.21.0"


def binary() -> Path:
    """Return the checker's binary, built at the first call."""
    sources = [HERE / name for name in ("main.go", "go.mod", "go.sum")]
    target = CACHE / f"manifests-{hashlib.sha256(b''.join(s.read_bytes() for s in sources)).hexdigest()[:12]}"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        temporary = CACHE / f"manifests.{os.getpid()}.tmp"
        print("building the checker of manifests (a minute the first time) ...", flush=True)
        command = [go(), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(temporary), "."]
        subprocess.run(command, cwd=HERE, check=True)
        temporary.rename(target)
    return target


def build(folder: Path) -> list[dict[str, Any]]:
    """Return the documents that Kustomize makes of a folder."""
    done = subprocess.run([binary(), "build", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return [d for d in yaml.safe_load_all(done.stdout) if d]


def decode(path: Path) -> str:
    """Decode a document of the Prometheus operator strictly; return its kind."""
    done = subprocess.run([binary(), "decode", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout.strip()


def keda_definitions() -> list[dict[str, Any]]:
    """Return KEDA's custom resource definitions, as its Go module ships them."""
    command = [go(), "mod", "download", "-json", KEDA]
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=True)
    folder = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "bases"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("keda.sh_*.yaml"))]

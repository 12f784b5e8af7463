"""Build and start the test control plane, and talk to it as its administrator."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("HEADWAY_PEERS_CACHE", Path.home() / ".cache" / "headway-peers"))
T = TypeVar("T")


def go() -> str:
    """Return the Go tool's path."""
    found = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(found).exists():
        raise RuntimeError("no Go tool: install Go 1.25 or newer to build the test control plane")
    return found


def binary() -> Path:
    """Return the control plane's binary, built at the first call (minutes on a cold cache, seconds on a warm one)."""
    version = re.search(r"k8s\.io/kubernetes (v\S+)", (HERE / "go.mod").read_text())
    assert version
    target = CACHE / f"kubecluster-{version[1]}"
    if target.exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp = "k8s.io/component-base/version"
    # without these the server calls itself v0.0.0-master+$Format:%H$, which clients cannot parse
    flags = (
        f"-s -w -X {stamp}.gitVersion={version[1]} -X {stamp}.gitMajor=1 -X {stamp}.gitMinor={version[1].split('.')[1]}"
    )
    flags += f" -X k8s.io/client-go/pkg/version.gitVersion={version[1]}"
    temporary = CACHE / f"kubecluster.{os.getpid()}.tmp"
    print("building the Kubernetes control plane for tests (minutes the first time) ...", flush=True)
    command = [go(), "build", "-trimpath", "-tags", "kcm", "-ldflags", flags, "-o", str(temporary), "."]
    subprocess.run(command, cwd=HERE, check=True)
    temporary.rename(target)
    return target


class KubeError(Exception):
    """The API server refused: HTTP status and its own status document."""

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code, self.status = code, status


class Cluster:
    """A running control plane; ``with Cluster(folder) as c: c("GET", "/api/v1/namespaces")``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(binary()), "up", "-dir", str(folder), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the control plane ended with {self._process.wait()}; logs are in {folder}")
        info = json.loads(line)
        self.server, self.token = str(info["server"]), str(info["token"])
        self.kubeconfig, self.pki = Path(info["kubeconfig"]), Path(info["pki"])
        self._client = httpx.Client(base_url=self.server, verify=self._tls(), timeout=30)

    def _tls(self) -> Any:
        import ssl

        return ssl.create_default_context(cafile=str(self.pki / "ca.crt"))

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Send a request as administrator."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        content = None if body is None else json.dumps(body)
        answer = self._client.request(method, path, content=content, headers=headers)
        document = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
        if answer.is_error:
            raise KubeError(answer.status_code, document or {"message": answer.text})
        return dict(document)

    def merge(self, path: str, body: Any) -> dict[str, Any]:
        """Merge-patch an object."""
        return self("PATCH", path, body, "application/merge-patch+json")

    def stop(self) -> None:
        """End everything."""
        self._client.close()
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(90)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_for(look: Callable[[], T], timeout_s: float = 90, what: str = "") -> T:
    """Look until the answer is true; a refusal of the server counts as "not yet"."""
    end, last = time.monotonic() + timeout_s, None
    while time.monotonic() < end:
        try:
            if last := look():
                return last
        except (KubeError, httpx.HTTPError) as exc:
            last = exc  # type: ignore[assignment]
        time.sleep(0.05)
    raise TimeoutError(f"{what or look}: last saw {last!r}")


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    """Return a Deployment whose pods never start (there is no node), which is enough for scaling."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def stateful_set(name: str, replicas: int = 1) -> dict[str, Any]:
    """Return a StatefulSet that makes its pods at once."""
    document = deployment(name, replicas)
    document["kind"] = "StatefulSet"
    document["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return document

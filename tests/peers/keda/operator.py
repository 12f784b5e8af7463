"""Build KEDA once, install its definitions, and run operator and adapter against a test cluster."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx
import yaml

from tests.peers.kube.cluster import CACHE, Cluster, KubeError, go, wait_for

HERE = Path(__file__).resolve().parent
MODULE = "github.com/kedacore/keda/v2"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices"
SCALED = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"


def version() -> str:
    """Return the version of KEDA that go.mod names."""
    found = re.search(rf"{re.escape(MODULE)} (v\S+)", (HERE / "go.mod").read_text())
    assert found
    return found[1]


def binary(command: str) -> Path:
    """Return ``operator`` or ``adapter``, built at the first call: some 10 minutes for both on two idle cores."""
    target = CACHE / f"keda-{command}-{version()}"
    if target.exists():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    temporary = CACHE / f"keda-{command}.{os.getpid()}.tmp"
    flags = f"-s -w -X {MODULE}/version.Version={version().removeprefix('v')}"
    print(f"building KEDA's {command} (minutes the first time) ...", flush=True)
    build = [go(), "build", "-trimpath", "-ldflags", flags, "-o", str(temporary), f"{MODULE}/cmd/{command}"]
    subprocess.run(build, cwd=HERE, check=True)
    temporary.rename(target)
    return target


def _definitions() -> list[dict[str, object]]:
    source = subprocess.run(
        [go(), "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=HERE, check=True, capture_output=True, text=True
    ).stdout.strip()
    files = sorted((Path(source) / "config" / "crd" / "bases").glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _certificates(folder: Path) -> None:
    folder.mkdir()
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=keda-ca -keyout ca.key -out ca.crt",
        "req -newkey rsa:2048 -nodes -subj /CN=keda -keyout tls.key -out tls.csr",
        "x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out tls.crt",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


class Keda:
    """Operator and adapter of KEDA in a running cluster; ``with Keda(cluster, folder): …``."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        _certificates(folder / "certificates")
        for definition in _definitions():
            cluster("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        cluster("POST", "/api/v1/namespaces", {"metadata": {"name": "keda"}})
        wait_for(lambda: cluster("GET", SCALED), 60, "KEDA's definitions are served")
        self._start()

    def _start(self) -> None:
        cluster, tls = self._cluster, self._folder / "certificates"
        metrics, secure = _free_port(), _free_port()
        kubeconfig = f"{cluster.kubeconfig}"
        self._spawn(
            "operator", f"--kubeconfig={kubeconfig}", f"--metrics-service-bind-address=127.0.0.1:{metrics}",
            "--metrics-bind-address=127.0.0.1:0", f"--health-probe-bind-address=127.0.0.1:{_free_port()}",
            f"--cert-dir={tls}", f"--ca-dir={tls}", "--zap-log-level=info",
        )  # fmt: skip
        self._spawn(
            "adapter", f"--kubeconfig={kubeconfig}", f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1", f"--secure-port={secure}", f"--port={_free_port()}",
            f"--metrics-service-address=localhost:{metrics}", f"--client-ca-file={cluster.pki / 'ca.crt'}",
            f"--tls-cert-file={tls / 'tls.crt'}", f"--tls-private-key-file={tls / 'tls.key'}", f"--cert-dir={tls}",
        )  # fmt: skip
        # ExternalName is the only kind of Service by which the aggregator reaches a loopback address
        ports = [{"port": secure}]
        service = {
            "metadata": {"name": "keda-metrics-apiserver"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": ports},
        }
        cluster("POST", "/api/v1/namespaces/keda/services", service)
        spec = {
            "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "insecureSkipTLSVerify": True,
            "service": {"name": "keda-metrics-apiserver", "namespace": "keda", "port": secure},
        }  # fmt: skip
        cluster("POST", SERVICE, {"metadata": {"name": "v1beta1.external.metrics.k8s.io"}, "spec": spec})
        wait_for(self._available, 90, "KEDA's adapter is available")

    def _available(self) -> bool:
        status = self._cluster("GET", f"{SERVICE}/v1beta1.external.metrics.k8s.io").get("status", {})
        return any(c["type"] == "Available" and c["status"] == "True" for c in status.get("conditions", []))

    def _spawn(self, command: str, *arguments: str) -> None:
        own = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda", "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda"}
        with (self._folder / f"{command}.log").open("wb") as log:
            started = subprocess.Popen([str(binary(command)), *arguments], stdout=log, stderr=log, env=os.environ | own)
        self._processes.append(started)

    def stop(self) -> None:
        """End operator and adapter, and take the adapter's registration back."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with suppress(KubeError, httpx.HTTPError):
            self._cluster("DELETE", f"{SERVICE}/v1beta1.external.metrics.k8s.io")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

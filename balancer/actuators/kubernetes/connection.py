"""Where the API server is and who we are: in-cluster files or a kubeconfig."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from balancer.errors import TargetRefused

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_LIFE = timedelta(minutes=5)
"""How long a token read from a file is used before it is read again; the kubelet rotates it about hourly."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One cluster and one identity.

    Parameters
    ----------
    server
        Base URL, ``https://…``.
    context
        TLS settings: the cluster's CA, and a client certificate where there is one.
    token
        Returns the bearer token; called with True when the last one was refused. None with certificates.
    namespace
        The identity's own namespace.
    """

    server: str
    context: ssl.SSLContext
    token: Callable[[bool], str] | None
    namespace: str = "default"


def connect(kubeconfig: Path | None = None, environ: Mapping[str, str] = os.environ) -> Connection:
    """Find the cluster: the given kubeconfig, else ``KUBECONFIG``, else in-cluster files, else ``~/.kube/config``.

    Raises
    ------
    TargetRefused
        If none is there, or the file cannot be used; the message says what was looked at.
    """
    if kubeconfig is None and environ.get("KUBECONFIG"):
        kubeconfig = Path(environ["KUBECONFIG"])
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    if environ.get("KUBERNETES_SERVICE_HOST") and (IN_CLUSTER / "token").exists():
        return in_cluster(IN_CLUSTER, environ)
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return from_kubeconfig(home)
    raise TargetRefused(
        f"no Kubernetes cluster: not in a pod ({IN_CLUSTER}/token is absent), KUBECONFIG is not set and {home} "
        "does not exist; set KUBECONFIG or run in a pod with a service account"
    )


def in_cluster(folder: Path, environ: Mapping[str, str]) -> Connection:
    """Use the service account's files; the token file is read again when it is old or was refused."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").exists() else "default"
    return Connection(f"https://{host}:{port}", context, FileToken(folder / "token"), namespace)


class FileToken:
    """A bearer token in a file that somebody rotates."""

    def __init__(self, path: Path, now: Callable[[], datetime] = datetime.now) -> None:
        self._path, self._now = path, now
        self._token = ""
        self._read_at: datetime | None = None

    def __call__(self, refused: bool = False) -> str:
        """Return the token, read again when it is old or was refused."""
        now = self._now()
        if refused or self._read_at is None or now - self._read_at >= TOKEN_LIFE:
            try:
                self._token = self._path.read_text().strip()
            except OSError as exc:
                raise TargetRefused(f"cannot read the service account token {self._path}: {exc.strerror}") from exc
            self._read_at = now
        return self._token

    def __repr__(self) -> str:
        return f"FileToken({str(self._path)!r})"


class ExecToken:
    """A bearer token from a credential plug-in (``users[].user.exec`` of a kubeconfig)."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._command = [str(spec["command"]), *map(str, spec.get("args") or [])]
        self._environ = {e["name"]: e["value"] for e in spec.get("env") or []}
        self._api_version = str(spec.get("apiVersion", "client.authentication.k8s.io/v1"))
        self._token: str | None = None

    def __call__(self, refused: bool = False) -> str:
        """Return the token, asked for again when it was refused."""
        if self._token is None or refused:
            info = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
            environ = os.environ | self._environ | {"KUBERNETES_EXEC_INFO": json.dumps(info)}
            try:
                done = subprocess.run(
                    self._command, env=environ, capture_output=True, text=True, timeout=30, check=True
                )
                self._token = str(json.loads(done.stdout)["status"]["token"])
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as exc:
                raise TargetRefused(f"credential plug-in {self._command[0]!r} gave no token: {exc}") from exc
        return self._token

    def __repr__(self) -> str:
        return f"ExecToken({self._command[0]!r})"


def from_kubeconfig(path: Path) -> Connection:
    """Use the current context of a kubeconfig: token, token file, client certificate or ``exec`` plug-in.

    JSON always works; YAML needs PyYAML (extra ``kubernetes``).
    """
    try:
        document = _parse(path.read_text())
    except OSError as exc:
        raise TargetRefused(f"cannot read kubeconfig {path}: {exc.strerror}") from exc
    try:
        name = document["current-context"]
        context = _named(document, "contexts", name)["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context["user"])["user"]
        server = str(cluster["server"]).rstrip("/")
    except (KeyError, TypeError) as exc:
        raise TargetRefused(f"kubeconfig {path} has no usable current-context: {exc} is missing") from exc
    tls = ssl.create_default_context(
        cafile=_relative(path, cluster.get("certificate-authority")),
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        if "certificate-authority-data" in cluster
        else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    _client_certificate(tls, path, user)
    token: Callable[[bool], str] | None = None
    if "token" in user:
        fixed = str(user["token"])
        token = lambda refused=False: fixed  # noqa: E731 - a constant that looks like the others
    elif "tokenFile" in user:
        token = FileToken(Path(str(_relative(path, user["tokenFile"]))))
    elif "exec" in user:
        token = ExecToken(user["exec"])
    return Connection(server, tls, token, str(context.get("namespace", "default")))


def _parse(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        try:
            import yaml
        except ImportError as exc:
            raise TargetRefused(
                "this kubeconfig is YAML: install the extra, pip install 'headway[kubernetes]'"
            ) from exc
        parsed = yaml.safe_load(text)
    if not isinstance(parsed, dict):
        raise TargetRefused("the kubeconfig is not a mapping")
    return parsed


def _named(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    for entry in document[kind]:
        if entry["name"] == name:
            return dict(entry)
    raise KeyError(f"{kind}[{name}]")


def _relative(path: Path, file: str | None) -> str | None:
    return None if file is None else str(path.parent / file)


def _client_certificate(tls: ssl.SSLContext, path: Path, user: Mapping[str, Any]) -> None:
    if "client-certificate" in user:
        tls.load_cert_chain(str(_relative(path, user["client-certificate"])), _relative(path, user.get("client-key")))
    elif "client-certificate-data" in user:
        # ssl loads chains from files only: written for the moment of loading, readable by us alone
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for key in ("client-certificate-data", "client-key-data"):
                file = Path(folder) / key
                file.touch(mode=0o600)
                file.write_bytes(base64.b64decode(user[key]))
                files.append(str(file))
            tls.load_cert_chain(files[0], files[1])

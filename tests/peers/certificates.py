"""Certificates of an authority made for one test, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*arguments: str | Path) -> None:
    """Run one openssl command."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certificates(folder: Path, authority: str) -> tuple[Path, Path, Path]:
    """Return the authority's certificate, and certificate and key of ``localhost`` signed by it, as PEM files."""
    ca, ca_key = folder / f"{authority}-ca.crt", folder / f"{authority}-ca.key"
    subject = ("-subj", f"/CN={authority}")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, "-keyout", ca_key, "-out", ca)
    made = folder / authority
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl("req", "-newkey", "rsa:2048", "-nodes", *subject, "-keyout", f"{made}.key", "-out", f"{made}.csr")
    signing = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", folder / "ext")
    openssl("x509", "-req", "-in", f"{made}.csr", *signing, "-out", f"{made}.crt")
    return ca, Path(f"{made}.crt"), Path(f"{made}.key")

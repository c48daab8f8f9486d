"""Certificates for tests of TLS, made on the spot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def made(folder: Path, name: str) -> tuple[str, str, str]:
    """The files of a certificate, of its key, and of the authority that has signed it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl, to make certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    for command in (
        ("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", f"/CN={name}"),
        ("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=board"),
        ("x509", "-req", "-in", "request.pem", *by, "-out", "cert.pem"),
    ):
        subprocess.run([openssl, *command], cwd=folder, check=True, capture_output=True)
    cert, secret, authority = (str(folder / file) for file in ("cert.pem", "key.pem", "ca.pem"))
    return cert, secret, authority

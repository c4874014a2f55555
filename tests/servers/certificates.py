"""A certificate authority for one test run, and a server certificate of it, as PEM files."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.tools import tool


@dataclass(frozen=True)
class Certificates:
    #: the authority that clients trust
    ca: Path
    #: the server's certificate, and its key in the PKCS 8 form that Java reads
    certificate: Path
    key: Path


def make(folder: Path) -> Certificates:
    """For a server at 127.0.0.1 and localhost. Raises `Missing` without openssl."""
    folder.mkdir(parents=True, exist_ok=True)
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    ca, certificate, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=offramp tests"),
        *("-keyout", folder / "ca.key", "-out", ca),
    )
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
        *("-keyout", key, "-out", folder / "server.csr"),
    )
    _openssl(
        *("x509", "-req", "-in", folder / "server.csr", "-days", "2", "-extfile", names),
        *("-CA", ca, "-CAkey", folder / "ca.key", "-CAcreateserial", "-out", certificate),
    )
    return Certificates(ca, certificate, key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([tool("openssl"), *map(str, arguments)], check=True, capture_output=True, timeout=60)

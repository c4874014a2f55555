"""A certificate authority of its own for a test, which signs every request."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.tools import Missing, give_up, tool

_CONFIG = """\
[ca]
default_ca = this
[this]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = anything
unique_subject = no
copy_extensions = copy
[anything]
commonName = supplied
"""


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """Uses keys of elliptic curves, which are fast to create."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        self._signed = 0
        (folder / "index").touch()
        (folder / "config").write_text(_CONFIG.format(folder=folder))
        _openssl(
            "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={folder.name}", *_to(self.certificate, self._key)
        )

    def sign(self, name: str, *, starts: str = "20200101000000Z", ends: str = "20500101000000Z") -> Pair:
        """A certificate for `name` at 127.0.0.1, valid for so long. Its key is closed to others."""
        self._signed += 1
        stem = f"{name}-{self._signed}"
        pair = Pair(self.folder / f"{stem}.pem", self.folder / f"{stem}.key")
        request = self.folder / f"{stem}.csr"
        names = f"subjectAltName=DNS:{name},IP:127.0.0.1"
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-addext", names, *_to(request, pair.key))
        config = ("-config", self.folder / "config", "-batch", "-notext")
        signer = ("-cert", self.certificate, "-keyfile", self._key)
        times = ("-startdate", starts, "-enddate", ends)
        _openssl("ca", *config, *signer, *times, "-in", request, "-out", pair.certificate)
        pair.key.chmod(0o600)
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _to(out: Path, key: Path) -> tuple[str | Path, ...]:
    return ("-out", out, "-keyout", key)


def _openssl(*arguments: str | Path) -> None:
    try:
        program = tool("openssl")
    except Missing as missing:
        give_up(missing)
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()

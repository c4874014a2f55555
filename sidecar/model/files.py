"""Reads the files of certificates, keys, tokens and other secrets."""

import os
import stat

from sidecar.model.errors import StartError

#: bytes; no certificate chain, key or list of tokens is larger, and a device file never ends
_MAX_BYTES = 1 << 20


def read(setting: str, path: str) -> bytes:
    """The content of the file. Raises `StartError`, which names the setting and the file."""
    content, _ = _open(setting, path)
    return content


def read_secret(setting: str, path: str) -> bytes:
    """The same for a file that must be accessible only to its owner and group."""
    content, mode = _open(setting, path)
    if mode & stat.S_IRWXO:
        raise StartError(
            f"{setting}: {path} is accessible to every user (mode {stat.S_IMODE(mode):04o}); fix this with "
            "chmod o-rwx or, for a Secret of Kubernetes, with defaultMode: 0440 and an fsGroup"
        )
    return content


def _open(setting: str, path: str) -> tuple[bytes, int]:
    try:
        # Opening a pipe would otherwise block until somebody writes to it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise StartError(f"{setting}: {path} is not a file")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise StartError(f"{setting}: {path} cannot be read: {error.strerror}") from error
    if not content.strip():
        raise StartError(f"{setting}: {path} is empty")
    if len(content) > _MAX_BYTES:
        raise StartError(
            f"{setting}: {path} has more than {_MAX_BYTES} bytes, which is too large for a certificate or a secret"
        )
    return content, found.st_mode

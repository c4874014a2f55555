"""The tokens of the configured clients.

Only digests are kept, so that no mistake elsewhere can print a token. A presented token is compared with all of them in
constant time, so that response times reveal nothing.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from sidecar.model.errors import StartError
from sidecar.server.auth import files
from sidecar.server.auth.caller import Caller
from sidecar.settings import ClientSettings

#: characters of a token; shorter ones can be guessed
_MIN_CHARACTERS, _MAX_CHARACTERS = 16, 4_096


class _Entry(NamedTuple):
    digest: bytes
    caller: Caller


class Tokens:
    """The callers by their tokens. `read` reads them from the files."""

    def __init__(self, entries: Mapping[bytes, Caller] | None = None) -> None:
        self._entries = [_Entry(digest, caller) for digest, caller in (entries or {}).items()]

    def caller(self, token: bytes) -> Caller | None:
        """The caller with this token, or None."""
        presented, found = _digest(token), None
        for entry in self._entries:
            # Go through all of them even after a match.
            if hmac.compare_digest(entry.digest, presented):
                found = entry.caller
        return found

    def same_as(self, other: "Tokens") -> bool:
        """Whether these are the same tokens of the same clients."""
        return self._clients() == other._clients()

    def _clients(self) -> dict[bytes, str]:
        return {entry.digest: entry.caller.who for entry in self._entries}

    def replace(self, old: "Tokens") -> None:
        """Take over the callers whose tokens stay, and revoke those whose token is gone."""
        callers = {(entry.digest, entry.caller.who): entry.caller for entry in old._entries}
        self._entries = [_Entry(digest, callers.pop((digest, caller.who), caller)) for digest, caller in self._entries]
        for caller in callers.values():
            caller.revoke(f"the token of {caller.who} is no longer valid")


def read(clients: Mapping[str, ClientSettings]) -> Tokens:
    """Raises `StartError`, which names the client and the file, never the token."""
    entries: dict[bytes, Caller] = {}
    for name, settings in clients.items():
        setting = f"clients.{name}.token_file"
        for number, line in _lines(files.read_secret(setting, settings.token_file)):
            where = f"{setting}: {settings.token_file}, line {number}"
            if not _MIN_CHARACTERS <= len(line) <= _MAX_CHARACTERS:
                raise StartError(
                    f"{where}: a token has {_MIN_CHARACTERS} to {_MAX_CHARACTERS} characters; this one has {len(line)}"
                )
            if not all(0x21 <= byte <= 0x7E for byte in line):
                raise StartError(f"{where}: a token is printable ASCII without spaces; this one is not")
            digest = _digest(line)
            if digest in entries:
                raise StartError(f"{where}: this token is already one of {entries[digest].who}")
            # Each token has a caller of its own, so that removing one ends only the calls made with it.
            entries[digest] = Caller.client(settings)
    return Tokens(entries)


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    stripped = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), 1)]
    return [(number, line) for number, line in stripped if line]


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()

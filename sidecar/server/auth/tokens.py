"""The tokens of the configured clients.

Only digests are kept, so that no mistake anywhere can print a token, and each shown token is compared with all of them
in constant time, so that nobody learns from the time an answer takes.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from sidecar.model.errors import StartError
from sidecar.server.auth import files
from sidecar.server.auth.caller import Caller
from sidecar.settings import ClientSettings

#: characters; less can be guessed
LEAST = 16
_MOST = 4_096


class _Entry(NamedTuple):
    digest: bytes
    caller: Caller


class Tokens:
    """Who shows which token. `read` makes one from the files."""

    def __init__(self, entries: Mapping[bytes, Caller] | None = None) -> None:
        self._entries = [_Entry(digest, caller) for digest, caller in (entries or {}).items()]

    def caller(self, token: bytes) -> Caller | None:
        shown, found = _digest(token), None
        for entry in self._entries:
            # All of them, whether or not it was found.
            if hmac.compare_digest(entry.digest, shown):
                found = entry.caller
        return found

    def same_as(self, other: "Tokens") -> bool:
        """The same tokens, of the same clients."""
        return self._clients() == other._clients()

    def _clients(self) -> dict[bytes, str]:
        return {entry.digest: entry.caller.who for entry in self._entries}

    def keep(self, old: "Tokens") -> None:
        """Take over the callers of tokens that stay, and revoke those whose token is gone."""
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
            if not LEAST <= len(line) <= _MOST:
                raise StartError(f"{where}: a token has {LEAST} to {_MOST} characters; this one has {len(line)}")
            if not all(0x21 <= byte <= 0x7E for byte in line):
                raise StartError(f"{where}: a token is printable ASCII without spaces; this one is not")
            digest = _digest(line)
            if digest in entries:
                raise StartError(f"{where}: this token is there already, as one of {entries[digest].who}")
            # Each token is a caller of its own, so that taking one away ends only what came in with it.
            entries[digest] = Caller.client(settings)
    return Tokens(entries)


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """The lines that have something on them, with their numbers."""
    stripped = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), 1)]
    return [(number, line) for number, line in stripped if line]


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()

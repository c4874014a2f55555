"""The tokens of the configured clients.

Only digests are kept, so that no mistake elsewhere can print a token. A presented token is compared with all of them in
constant time, so that response times reveal nothing.
"""

import hashlib
import hmac
from collections.abc import Mapping

from sidecar.model import files
from sidecar.model.errors import StartError
from sidecar.server.auth.caller import Caller
from sidecar.settings import ClientSettings

#: characters of a token; shorter ones can be guessed
_MIN_CHARACTERS, _MAX_CHARACTERS = 16, 4_096


class Tokens:
    """The callers by the digests of their tokens. `read` reads them from the files."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = callers

    def caller(self, token: bytes) -> Caller | None:
        """The caller with this token, or None."""
        presented, found = _digest(token), None
        for digest, caller in self._callers.items():
            # Go through all of them even after a match.
            if hmac.compare_digest(digest, presented):
                found = caller
        return found

    def same_as(self, other: "Tokens") -> bool:
        """Whether these are the same tokens of the same clients."""
        return self._clients() == other._clients()

    def _clients(self) -> dict[bytes, str]:
        return {digest: caller.who for digest, caller in self._callers.items()}

    def replace(self, old: "Tokens") -> None:
        """Take over the callers whose tokens stay, and revoke those whose token is gone."""
        before = {(digest, caller.who): caller for digest, caller in old._callers.items()}
        self._callers = {digest: before.pop((digest, caller.who), caller) for digest, caller in self._callers.items()}
        for caller in before.values():
            caller.revoke(f"the token of {caller.who} is no longer valid")


def read(clients: Mapping[str, ClientSettings]) -> Tokens:
    """Raises `StartError`, which names the client and the file, never the token."""
    callers: dict[bytes, Caller] = {}
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
            if digest in callers:
                raise StartError(f"{where}: this token is already one of {callers[digest].who}")
            # Each token has a caller of its own, so that removing one ends only the calls made with it.
            callers[digest] = Caller.client(settings)
    return Tokens(callers)


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    stripped = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), 1)]
    return [(number, line) for number, line in stripped if line]


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()

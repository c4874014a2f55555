"""Token files for the tests of tokens and of the guard."""

from pathlib import Path

from sidecar.server.auth import tokens
from sidecar.server.auth.tokens import Tokens
from sidecar.settings import ClientSettings

OLD, NEW, OTHER = b"old-0123456789abcdef", b"new-0123456789abcdef", b"other-0123456789abcdef"


def read(tmp_path: Path, **held: bytes) -> Tokens:
    clients = {}
    for name, content in held.items():
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(0o600)
        clients[name] = ClientSettings(name=name, token_file=str(path), consume=("orders",))
    return tokens.read(clients)

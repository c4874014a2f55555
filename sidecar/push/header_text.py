"""Any text as the value of an HTTP header. Pure."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote_to_bytes

from sidecar.model.records import Header

Headers = list[tuple[str, str]]

#: printable ASCII, without what the percent-encoding of CloudEvents encodes
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
#: what belongs to the connection, to the framing of the body, or to whoever may call: never taken from a record
_RESERVED = frozenset(
    {
        "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "cookie", "expect",
        "forwarded", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "user-agent",
    }
)  # fmt: skip
_RESERVED_PREFIXES = ("offramp-", "webhook-", "ce-", "x-forwarded-", "x-real-")
#: bytes of a record's headers that go into a call: servers accept 8 KiB in all
_MAX_BYTES = 4096


def encode(text: str | bytes) -> str:
    """The text with all but printable ASCII percent-encoded, as CloudEvents do."""
    return quote(text if isinstance(text, bytes) else text.encode(errors="replace"), safe=_PLAIN)


def decode(text: str) -> bytes:
    return unquote_to_bytes(text.encode(errors="surrogateescape"))


def of_record(headers: Iterable[Header], taken: Iterable[str]) -> Headers:
    """A record's headers as those of a call: without reserved ones, and without those in `taken`.

    A record must not be able to change how the call is framed, or who seems to be calling.
    """
    out = list(_allowed(headers, {name.lower() for name in taken}))
    size = 0
    for at, (name, value) in enumerate(out):
        size += len(name) + len(value) + 4
        if size > _MAX_BYTES:
            return out[:at]
    return out


def _allowed(headers: Iterable[Header], taken: set[str]) -> Iterator[tuple[str, str]]:
    for header in headers:
        name = header.name.lower()
        if header.value is None or name in taken or name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
            continue
        # Servers that turn headers into variables take both for one: X_Y for X-Y.
        if "_" not in name and _TOKEN.fullmatch(name):
            yield name, encode(header.value).replace("%20", " ").strip()

"""Signs calls, so that the app can check who calls: as standardwebhooks.com describe it. Pure."""

import base64
import binascii
import hmac
from hashlib import sha256

from sidecar.model.errors import StartError
from sidecar.push.header_text import Headers

_PREFIX = "whsec_"


def parse_keys(setting: str, content: bytes) -> tuple[bytes, ...]:
    """One key a line: `whsec_` and base64, or any text, which is the key itself. Raises `StartError`."""
    keys = []
    for line in content.decode(errors="surrogateescape").split():
        if not line.startswith(_PREFIX):
            keys.append(line.encode(errors="surrogateescape"))
            continue
        try:
            keys.append(base64.b64decode(line.removeprefix(_PREFIX), validate=True))
        except (binascii.Error, ValueError) as error:
            raise StartError(f"{setting}: what follows {_PREFIX} is not base64") from error
    return tuple(keys)


def sign(keys: tuple[bytes, ...], id_: str, body: bytes, now_ms: int) -> Headers:
    """The headers that a call carries: one signature for each key."""
    timestamp = str(now_ms // 1000)
    signed = f"{id_}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, signed, sha256)).decode() for key in keys)
    return [
        ("webhook-id", id_),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", " ".join(f"v1,{signature}" for signature in signatures)),
    ]

"""Fencing tokens: which of two readers attached later, and whether a number ever was a token. Pure.

A token is a count of attachments, some random bits, and a checksum of both. The count makes a later token the greater
one. It is no less than the minutes since 1970: a broker may forget what tokens there were, and the next one must be the
greater all the same. The bits tell two readers apart that attached at the same time through different sidecars, where
the broker cannot put one after the other. The checksum tells a token from a number that somebody made up: a sidecar
that was restarted has no list of those it gave out.
"""

import secrets
from zlib import crc32

_RANDOM_BITS = _CHECK_BITS = 16
#: milliseconds
_MINUTE = 60_000


def following(token: int, now_ms: int) -> int:
    """A token that is newer than this one (0: the first), and than any that was given out a minute ago or earlier."""
    count = max((token >> (_RANDOM_BITS + _CHECK_BITS)) + 1, now_ms // _MINUTE)
    body = count << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return body << _CHECK_BITS | _check(body)


def is_token(number: int) -> bool:
    """Somebody may have been given this."""
    body = number >> _CHECK_BITS
    return body >> _RANDOM_BITS > 0 and number & (1 << _CHECK_BITS) - 1 == _check(body)


def _check(body: int) -> int:
    return crc32(b"offramp %d" % body) & (1 << _CHECK_BITS) - 1

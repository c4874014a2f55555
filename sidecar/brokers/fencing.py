"""Fencing for groups that are read by ranges: who may commit, and how a broker stores that. Pure.

**Tokens.** A token consists of a counter of attachments, some random bits, and a checksum of both. The counter makes a
later token greater. It is at least the number of minutes since 1970: a broker may forget earlier tokens, and the next
one must still be greater. The random bits distinguish two readers that attach at the same time through different
sidecars, where the broker cannot order them. The checksum distinguishes a token from an invented number: a restarted
sidecar has no list of the tokens it issued.

**Fences.** A broker that stores a text beside each position stores the token like this:

    offramp-ranges:1:<token>:<attached at, ms>:<pinned or unpinned>:<name of the reader>

Every position of the group carries this text, and the newest token counts. A group that has no position yet must still
store its token: one lane then gets an *unpinned* entry at the start of the lane, which does not count as a position.
Consumers by leases ignore the text and use the position.
"""

import secrets
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from sidecar.model.errors import Fenced, Refused
from sidecar.model.reasons import Reason

_RANDOM_BITS = _CHECK_BITS = 16
#: milliseconds
_MINUTE = 60_000

_PREFIX = "offramp-ranges:1:"
_PINNED, _UNPINNED = "pinned", "unpinned"


class Attached(NamedTuple):
    """The reader that may commit for a group."""

    token: int
    #: the name of the reader, for people
    reader: str
    #: milliseconds since 1970
    since_ms: int


class Fence(NamedTuple):
    """What is stored beside a position."""

    attached: Attached
    #: the position counts; otherwise it only carries the token
    pinned: bool


def next_token(token: int, now_ms: int) -> int:
    """A token that is newer than this one (0: the first), and than any issued at least a minute ago."""
    count = max((token >> (_RANDOM_BITS + _CHECK_BITS)) + 1, now_ms // _MINUTE)
    body = count << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return body << _CHECK_BITS | _check(body)


def is_token(number: int) -> bool:
    """Whether the number may have been issued as a token."""
    body = number >> _CHECK_BITS
    return body >> _RANDOM_BITS > 0 and number & (1 << _CHECK_BITS) - 1 == _check(body)


def check_token(token: int, attached: Attached | None, *, exact: bool) -> None:
    """Raises `Fenced` or `Refused` unless this is the newest token.

    `exact`: the broker never forgets a stored token, so a greater one was not issued for this group.
    """
    if not is_token(token):
        raise Refused(f"token {token} was never issued: call Attach", Reason.TOKEN)
    if attached is not None and token < attached.token:
        raise Fenced(
            f"another reader has attached since this token was issued: {attached.reader or 'one without a name'}, "
            f"token {attached.token}"
        )
    if exact and (attached is None or token > attached.token):
        text = f"token {token} was not issued for this group, or the group was deleted since: call Attach"
        raise Refused(text, Reason.TOKEN)


def encode(fence: Fence) -> str:
    token, reader, since_ms = fence.attached
    return f"{_PREFIX}{token}:{since_ms}:{_PINNED if fence.pinned else _UNPINNED}:{reader}"


def decode(text: str) -> Fence | None:
    """None if the text is no fence: the position beside it then counts, like one set by a tool."""
    if not text.startswith(_PREFIX):
        return None
    try:
        token, since_ms, pinned, reader = text[len(_PREFIX) :].split(":", 3)
        fence = Fence(Attached(int(token), reader, int(since_ms)), {_PINNED: True, _UNPINNED: False}[pinned])
    except (ValueError, KeyError):
        return None
    return fence if is_token(fence.attached.token) else None


def newest(fences: Iterable[Fence | None]) -> Attached | None:
    """The reader with the newest token."""
    return max((fence.attached for fence in fences if fence is not None), default=None)


def _check(body: int) -> int:
    return crc32(b"offramp %d" % body) & (1 << _CHECK_BITS) - 1

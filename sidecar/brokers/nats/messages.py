"""Messages of a stream as records, and back. Pure.

The payload is the value and NATS's headers are headers. What these cannot carry has headers of ours:

    offramp-key         the key, if it is a text that a header can carry; offramp-key-base64 otherwise
    offramp-header      JSON of a name and the value in base64 (or null), for a header that NATS cannot carry as it is,
                        or that the server would act on: such as `Nats-Msg-Id` of a dead letter, by which the server
                        would drop it as a duplicate of its original
    offramp-null        the value is null
    offramp-timestamp   the time of the record, in milliseconds since 1970
    Nats-Subject        on records only: the subject, where the lane does not say it. A message that has it goes to that
                        subject again, if its stream takes it
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sidecar.brokers.queue.driver import Received
from sidecar.model.records import Header, Message

SUBJECT = "Nats-Subject"
_KEY, _KEY_BASE64, _HEADER = "offramp-key", "offramp-key-base64", "offramp-header"
_NULL, _TIMESTAMP = "offramp-null", "offramp-timestamp"
#: on each message that Offramp publishes: the server refuses it if another stream has the subject by now
_EXPECTED = "Nats-Expected-Stream"
_OURS = frozenset((_KEY, _KEY_BASE64, _HEADER, _NULL, _TIMESTAMP))

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: what the server reads. It tells nothing of a message to others, so it is escaped whatever follows
_OF_THE_SERVER = "nats-"
_VERSION = b"NATS/1.0\r\n"
#: bytes around a header, and around all of them
_AROUND_ONE, _AROUND_ALL = 4, len(_VERSION) + 2


class Place(NamedTuple):
    """What the reply subject of a delivered message says of it."""

    stream_sequence: int
    consumer_sequence: int
    deliveries: int
    #: nanoseconds since 1970
    time: int


def place_of(reply: str) -> Place:
    """Reads `$JS.ACK.STREAM.CONSUMER.deliveries.stream.consumer.time.pending`, or its longer form with domain and
    account. Raises `ValueError`."""
    parts = reply.split(".")
    first = 4 if len(parts) == 9 else 6
    if len(parts) < 9:
        raise ValueError(f"no reply subject of a stream: {reply}")
    deliveries, stream_sequence, consumer_sequence, time = map(int, parts[first : first + 4])
    return Place(stream_sequence, consumer_sequence, deliveries, time)


def received(handle: str, place: Place, subject: str, lane_subject: str, block: bytes, payload: bytes) -> Received[str]:
    """`block`: the headers as they came; empty: there are none. The hot path."""
    key: bytes | None = None
    value: bytes | None = payload
    headers: list[Header] = []
    timestamp_ms = place.time // 1_000_000
    if subject != lane_subject:
        headers.append(Header(SUBJECT, subject.encode()))
    for name, text in _pairs(block):
        if name == _EXPECTED:
            continue
        if name not in _OURS:
            headers.append(Header(name, text))
            continue
        try:
            if name == _KEY:
                key = text
            elif name == _KEY_BASE64:
                key = base64.b64decode(text, validate=True)
            elif name == _HEADER:
                headers.append(_unescaped(text))
            elif name == _TIMESTAMP:
                timestamp_ms = int(text)
            else:
                value = None
        except (ValueError, TypeError):
            # Somebody else uses that name.
            headers.append(Header(name, text))
    ref = b"%d-%d" % (place.stream_sequence, place.time)
    before = place.deliveries - 1
    return Received(
        handle, key, value, headers, timestamp_ms, ref, place.stream_sequence, before, possibly_processed=before > 0
    )


def headers_of(message: Message, stream: str, *, skip_subject: bool) -> list[tuple[str, str]]:
    """The headers that carry a message to a stream, in order. `skip_subject`: it goes to the subject that it names."""
    found: list[tuple[str, str]] = [(_EXPECTED, stream)]
    if message.key is not None:
        text = _as_text(message.key)
        found.append((_KEY, text) if text is not None else (_KEY_BASE64, base64.b64encode(message.key).decode()))
    if message.value is None:
        found.append((_NULL, "value"))
    if message.timestamp_ms > 0:
        found.append((_TIMESTAMP, str(message.timestamp_ms)))
    if message.deduplication_id:
        found.append(("Nats-Msg-Id", message.deduplication_id))
    for header in message.headers:
        if skip_subject and header.name == SUBJECT:
            skip_subject = False
            continue
        text = None if header.value is None else _as_text(header.value)
        if text is None or not _NAME.fullmatch(header.name) or _is_taken(header.name):
            found.append((_HEADER, _escaped(header)))
        else:
            found.append((header.name, text))
    return found


def size_of(headers: Sequence[tuple[str, str]], payload: bytes) -> int:
    """What the server counts against its `max_payload`."""
    block = sum(len(name) + len(text.encode()) + _AROUND_ONE for name, text in headers)
    return len(payload) + block + _AROUND_ALL


def subject_in(message: Message) -> str:
    """The subject that a message was published to before; empty: it does not say."""
    for header in message.headers:
        if header.name == SUBJECT and header.value is not None:
            return header.value.decode(errors="replace")
    return ""


def _pairs(block: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and values of a block, each as often as it is there."""
    if not block.startswith(_VERSION):
        return
    for line in block[len(_VERSION) :].split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            yield name.decode(errors="backslashreplace"), value.strip(b" \t")


def _as_text(value: bytes) -> str | None:
    """None: a header cannot carry it so that it comes back the same."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text == text.strip() and text.isprintable() else None


def _is_taken(name: str) -> bool:
    return name in _OURS or name.lower().startswith(_OF_THE_SERVER)


def _escaped(header: Header) -> str:
    value = None if header.value is None else base64.b64encode(header.value).decode()
    return json.dumps([header.name, value])


def _unescaped(text: bytes) -> Header:
    name, value = json.loads(text)
    if not isinstance(name, str):
        raise TypeError(name)
    return Header(name, None if value is None else base64.b64decode(value, validate=True))

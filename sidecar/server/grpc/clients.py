"""Who a client is and what it takes, as it says when it connects."""

import socket
from dataclasses import dataclass

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import InvalidRequest, Unmet
from sidecar.model.records import ClientInfo, Credit
from sidecar.model.version import PROTOCOL, PROTOCOL_MINOR

#: bytes; what gRPC clients take unless told otherwise
DEFAULT_MESSAGE_BYTES = 4 << 20
#: bytes; with less than this hardly any record would fit, and what fits nowhere is dead-lettered
LEAST_MESSAGE_BYTES = 4_096
#: characters of each text that is shown to people
_MOST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Terms:
    """What a session is opened with."""

    client: ClientInfo
    max_message_bytes: int
    #: seconds; None: as long as the session lives
    lease: float | None


def read_terms(client: pb.Client, max_message_bytes: int, lease_ms: int) -> Terms:
    """Raises `Unmet` for a client that needs a newer sidecar, and `InvalidRequest`."""
    if client.needs_protocol_minor > PROTOCOL_MINOR:
        raise Unmet(
            f"the client needs {PROTOCOL} minor version {client.needs_protocol_minor}; this sidecar speaks "
            f"{PROTOCOL_MINOR}"
        )
    return Terms(_read_client(client), read_message_bytes(max_message_bytes), lease_ms / 1_000 if lease_ms else None)


def read_message_bytes(number: int, default: int = DEFAULT_MESSAGE_BYTES) -> int:
    if 0 < number < LEAST_MESSAGE_BYTES:
        raise InvalidRequest(f"max_message_bytes: {number} is less than {LEAST_MESSAGE_BYTES}")
    return number or default


def read_credit(credit: pb.Credit) -> Credit:
    return Credit(credit.batches, credit.bytes)


def _read_client(client: pb.Client) -> ClientInfo:
    return ClientInfo(
        language=client.language[:_MOST_TEXT],
        library=client.library[:_MOST_TEXT],
        version=client.version[:_MOST_TEXT],
        pid=client.pid,
        # The socket is the pod's, so the client's host is this one.
        name=client.name[:_MOST_TEXT] or f"{socket.gethostname()}-{client.pid}",
    )

"""How a worker's session begins and ends, whichever way its batches go to it."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import Unmet
from sidecar.model.reasons import Reason
from sidecar.model.records import ClientInfo, Credit, Outcome, SessionEnd, Settlement
from sidecar.model.version import PROTOCOL, PROTOCOL_MINOR
from sidecar.observability.logs import Log
from sidecar.server.grpc.requests import read_message_bytes
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.subscription import Subscription

#: characters of each text that is shown to people
_MAX_TEXT = 200

NO_CREDIT = Credit(0)

log = Log("service")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a session is opened with."""

    client: ClientInfo
    max_message_bytes: int
    #: seconds; None: as long as the session lives
    lease: float | None
    #: records of a batch; 0: as many as the subscription's settings say
    batch_records: int = 0


def read_terms(request: pb.Hello | pb.OpenRequest | pb.FetchRequest) -> Terms:
    """Raises `Unmet` for a client that needs a newer sidecar, and `InvalidRequest`."""
    client = request.client
    if client.needs_protocol_minor > PROTOCOL_MINOR:
        raise Unmet(
            f"the client needs {PROTOCOL} minor version {client.needs_protocol_minor}; this sidecar speaks "
            f"{PROTOCOL_MINOR}",
            Reason.VERSION,
            needed=client.needs_protocol_minor,
            spoken=PROTOCOL_MINOR,
        )
    return Terms(
        _read_client(client),
        read_message_bytes(request.max_message_bytes),
        request.lease_ms / 1_000 if request.lease_ms else None,
        request.max_batch_records,
    )


def connect(subscription: Subscription, consumer: Consumer, terms: Terms, credit: Credit = NO_CREDIT) -> Session:
    """Raises `Stopping` while the subscription drains."""
    return subscription.connect(
        consumer,
        client=terms.client,
        credit=credit,
        max_message_bytes=terms.max_message_bytes,
        lease=terms.lease,
        batch_records=terms.batch_records,
    )


def reconnect(subscription: Subscription, session: Session, consumer: Consumer, terms: Terms) -> None:
    """The client of the session is back, on these terms."""
    session.max_message_bytes, session.lease = terms.max_message_bytes, terms.lease
    session.batch_records = terms.batch_records
    subscription.reconnect(session, consumer, terms.client)
    log.info(
        "worker session resumed",
        subscription=subscription.settings.name,
        client=session.name,
        leases=session.unsettled,
    )


def release(subscription: Subscription, leases: Sequence[bytes]) -> None:
    """Give back batches that their worker has never seen: this does not count as an attempt."""
    if leases:
        subscription.settle([Settlement(lease, Outcome.RELEASE) for lease in leases])


def end(subscription: Subscription, session: Session, how: SessionEnd) -> None:
    """End a session. Batches that were not written must be released before: they cannot have killed the worker."""
    session.stop_deliveries()
    if how is SessionEnd.LOST and session.unsettled:
        log.warning(
            "worker session lost: its batches are redelivered",
            subscription=subscription.settings.name,
            client=session.name,
            leases=session.unsettled,
        )
    session.end(how)


def _read_client(client: pb.Client) -> ClientInfo:
    return ClientInfo(
        language=client.language[:_MAX_TEXT],
        library=client.library[:_MAX_TEXT],
        version=client.version[:_MAX_TEXT],
        pid=client.pid,
        # The socket is the pod's, so the client runs on this host.
        name=client.name[:_MAX_TEXT] or f"{socket.gethostname()}-{client.pid}",
    )

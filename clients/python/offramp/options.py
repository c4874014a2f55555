"""The options of consumers and workers."""

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from offramp.answers import SettleResult
from offramp.batch import Batch
from offramp.channel import Access, AccessOptions
from offramp.protocol import DEFAULT_MESSAGE_BYTES, NEEDS_PROTOCOL_MINOR, PROTOCOL_MINOR, VERSION
from offramp.v1 import consumer_pb2 as pb

#: seconds; what the sidecar grants is far less
_MAX_RESUME = 86_400.0

OnResult = Callable[[Batch, SettleResult], object]


class ConnectOptions(AccessOptions, total=False):
    """Keyword arguments of all consumers and workers. For the address and the credentials see `offramp.channel`."""

    #: shown to operators in the status and in dead letters. Default: host and pid
    name: str | None
    #: seconds; ask for leases with this deadline, to be extended by `batch.extend`. Default: a lease lasts as long as
    #: the session, up to the subscription's `lease.max`
    lease: float | None
    #: bytes; the largest gRPC message that this process accepts, and so the largest record
    max_message_bytes: int
    #: ask for batches of at most this many records: 1 for one at a time. 0: as the subscription says, which is never
    #: exceeded
    max_batch_records: int
    #: bytes of batches that may be unsettled at a time. 0: only the sidecar's own limit
    credit_bytes: int
    #: seconds that a prefetched batch may wait for a worker before it is given back
    patience: float
    #: seconds for which the sidecar waits for this process when a TCP connection is lost: what is in hand stays in hand
    #: if it is there again in time. Others get it only after that time, even if this process died. Never longer than
    #: the sidecar's `listen.resume_max`; without effect on a unix socket
    resume: float
    #: drain on SIGTERM (workers: on SIGINT too) while running in the main thread
    signals: bool
    #: called with the result of every settlement, on the thread that talks to the sidecar: it must not block
    on_result: OnResult | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Options(Access):
    """`ConnectOptions`, checked and complete. Raises `ValueError`, which names the option."""

    subscription: str
    #: batches that may be unsettled at a time
    credit: int
    name: str | None = None
    lease: float | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    max_batch_records: int = 0
    credit_bytes: int = 0
    patience: float = 1.0
    resume: float = 0.0
    signals: bool = True
    on_result: OnResult | None = None

    def __post_init__(self) -> None:
        if not self.subscription:
            raise ValueError("subscription: a name is needed, as in the sidecar's configuration")
        for name, least in (("credit", 1), ("max_message_bytes", 4_096), ("max_batch_records", 0), ("credit_bytes", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is less than {least}")
        if self.lease is not None and not self.lease >= 0.001:
            raise ValueError(f"lease: {self.lease} seconds is too short; leave it out to have no deadline")
        if not self.patience > 0:
            raise ValueError(f"patience: {self.patience} is not a number of seconds above 0")
        if not 0 <= self.resume <= _MAX_RESUME:
            raise ValueError(f"resume: {self.resume} is not a number of seconds from 0 to {_MAX_RESUME:g}")
        Access.__post_init__(self)

    @property
    def waiting_time(self) -> float:
        """Seconds that a batch may wait here: a small part of its lease at most."""
        return self.patience if self.lease is None else min(self.patience, self.lease / 4)

    def hello(self, batches: int, session: bytes, held: Iterable[bytes]) -> pb.ConsumeRequest:
        """The first request of a connection, with a credit of `batches`. `session` is the one to resume, with the
        leases that are held, or empty."""
        pid = os.getpid()
        return pb.ConsumeRequest(
            hello=pb.Hello(
                subscription=self.subscription,
                client=pb.Client(
                    language="python",
                    library="offramp",
                    version=VERSION,
                    protocol_minor=PROTOCOL_MINOR,
                    needs_protocol_minor=NEEDS_PROTOCOL_MINOR,
                    pid=pid,
                    name=self.name or f"{socket.gethostname()}-{pid}",
                ),
                credit=self.as_credit(batches),
                max_message_bytes=self.max_message_bytes,
                max_batch_records=self.max_batch_records,
                lease_ms=0 if self.lease is None else round(self.lease * 1_000),
                resume_ms=round(self.resume * 1_000),
                resume=session,
                held=held,
            )
        )

    def as_credit(self, batches: int) -> pb.Credit:
        return pb.Credit(batches=batches, bytes=self.credit_bytes)

"""What consumers and workers can be told, and the channel that follows from it."""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import grpc
import grpc.aio

from offramp.answers import SettleResult
from offramp.batches import Batch
from offramp.protocol import DEFAULT_ADDRESS, DEFAULT_MESSAGE_BYTES, NEEDS_PROTOCOL_MINOR, PROTOCOL_MINOR, VERSION
from offramp.v1 import consumer_pb2 as pb

OnResult = Callable[[Batch, SettleResult], object]

_NEVER_MS = 2**31 - 1
#: servers take pings that are more frequent than every five minutes for an attack, unless they are told otherwise
_PING_MS = 330_000


class ConnectOptions(TypedDict, total=False):
    """Keyword arguments that all consumers and workers take."""

    #: `unix:/path`, or `host:port`. Default: the environment's OFFRAMP_ADDRESS, or unix:/run/offramp/offramp.sock
    address: str | None
    #: a name for people, shown in the status and in dead letters. Default: host and pid
    name: str | None
    #: seconds; ask for leases with this deadline, to be extended by `batch.extend`. Default: a lease lasts as long as
    #: the session, up to the subscription's `lease.max`
    lease: float | None
    #: bytes; the largest gRPC message that this process takes, and so the largest record
    max_message_bytes: int
    #: bytes of batches that may be unsettled at a time. 0: no limit but the sidecar's
    credit_bytes: int
    #: seconds that a prefetched batch may wait for a worker before it is given back
    patience: float
    #: drain on SIGTERM (workers: on SIGINT too) while running in the main thread
    signals: bool
    #: called with every answer to a settlement, on the thread that talks to the sidecar: it must not block
    on_result: OnResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`ConnectOptions`, checked and complete. Raises `ValueError`, which names the option."""

    subscription: str
    #: batches that may be unsettled at a time
    credit: int
    address: str | None = None
    name: str | None = None
    lease: float | None = None
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES
    credit_bytes: int = 0
    patience: float = 1.0
    signals: bool = True
    on_result: OnResult | None = None
    target: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.subscription:
            raise ValueError("subscription: a name is needed, as in the sidecar's configuration")
        for name, least in (("credit", 1), ("max_message_bytes", 4_096), ("credit_bytes", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is less than {least}")
        if self.lease is not None and not self.lease >= 0.001:
            raise ValueError(f"lease: {self.lease} seconds is too short; leave it out for one that lasts")
        if not self.patience > 0:
            raise ValueError(f"patience: {self.patience} is not a number of seconds above 0")
        object.__setattr__(self, "target", target(self.address))

    @property
    def waiting_time(self) -> float:
        """Seconds that a batch may wait here: a small part of its lease at the most."""
        return self.patience if self.lease is None else min(self.patience, self.lease / 4)

    def hello(self, batches: int) -> pb.ConsumeRequest:
        """The first words of a session that asks for so many batches."""
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
                lease_ms=0 if self.lease is None else round(self.lease * 1_000),
            )
        )

    def as_credit(self, batches: int) -> pb.Credit:
        return pb.Credit(batches=batches, bytes=self.credit_bytes)

    def open_channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.target, channel_options(self.target, self.max_message_bytes))


def target(address: str | None) -> str:
    """Where the sidecar is, as gRPC writes it."""
    address = address or os.environ.get("OFFRAMP_ADDRESS") or DEFAULT_ADDRESS
    return f"unix:{address}" if address.startswith("/") else address


def channel_options(to: str, max_message_bytes: int = DEFAULT_MESSAGE_BYTES) -> Sequence[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        # What the sidecar takes is the sidecar's to say.
        ("grpc.max_send_message_length", -1),
        # A new channel tries at once, instead of waiting for the backoff of an earlier one; when to try is ours to say.
        ("grpc.use_local_subchannel_pool", 1),
        # The sidecar is in this pod: a proxy for the world outside is not for it.
        ("grpc.enable_http_proxy", 0),
        # Between processes of one host the kernel tells when the other is gone.
        ("grpc.keepalive_time_ms", _NEVER_MS if is_local(to) else _PING_MS),
    ]


def is_local(to: str) -> bool:
    host = to.rpartition("/")[2].rpartition(":")[0]
    return to.startswith(("unix:", "unix-abstract:")) or host in {"localhost", "127.0.0.1", "[::1]", "::1"}

"""NATS JetStream, over nats-py. Where to start: `driver`, then `receiver`.

options     what can be configured, and checks of it
driver      the driver of `sidecar.brokers.queue`: streams, consumers, publishing, depth
receiver    what one group receives from one lane: pulls, acks, renewals
limits      pure: what a stream and a consumer do to messages by themselves
messages    pure: messages of a stream as records, and back
naming      pure: what streams, subjects and consumers are called
connection  one connection at a time, requests with one timeout, and errors as ours
"""

from typing import TYPE_CHECKING, Any

from sidecar.brokers.nats.options import NatsOptions

if TYPE_CHECKING:
    from sidecar.brokers.nats.driver import NatsBroker

__all__ = ["NatsBroker", "NatsOptions"]


def __getattr__(name: str) -> Any:
    """The library is an extra, and options are checked without it."""
    if name != "NatsBroker":
        raise AttributeError(name)
    from sidecar.brokers.nats.driver import NatsBroker  # noqa: PLC0415

    return NatsBroker

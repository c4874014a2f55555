"""Streams of Redis and Valkey, over redis-py. Where to start: `driver`, then `receiver`.

options     what can be configured, and checks of it
driver      the driver of `sidecar.brokers.queue`: streams, publishing, depth
receiver    what one group receives from one stream: new entries, those left pending, acks, renewals
entries     pure: entries of a stream to messages, and back; their ids as numbers
scripts     what must happen at once inside the server
connection  calls of the library with one timeout, and its errors as ours
"""

from typing import TYPE_CHECKING, Any

from sidecar.brokers.redis.options import RedisOptions

if TYPE_CHECKING:
    from sidecar.brokers.redis.driver import RedisBroker

__all__ = ["RedisBroker", "RedisOptions"]


def __getattr__(name: str) -> Any:
    """The library is an extra, and options are checked without it."""
    if name != "RedisBroker":
        raise AttributeError(name)
    from sidecar.brokers.redis.driver import RedisBroker  # noqa: PLC0415

    return RedisBroker

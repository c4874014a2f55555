"""The asyncio versions of `connect`, `Worker` and `Publisher`. Batches, records and errors are those of `offramp`."""

from offramp.aio.consumer import Consumer, connect
from offramp.aio.publisher import Publisher
from offramp.aio.worker import Handler, Worker

__all__ = ["Consumer", "Handler", "Publisher", "Worker", "connect"]

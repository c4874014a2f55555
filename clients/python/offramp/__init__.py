"""The Python client of Offramp: take batches from the sidecar, say how it went.

    from offramp import Worker

    def handle(batch):
        for record in batch:
            print(record.value)

    Worker("orders", handle, workers=8).run()

`Worker` runs a handler in threads, `Processes` in processes, `connect` gives batches to iterate over, `Publisher` sends
messages; `offramp.aio` has the same for asyncio, and `offramp.tracing` continues traces. `open_channel` makes a plain
gRPC channel, for generated stubs. What `offramp`, `offramp.aio`, `offramp.errors` and `offramp.tracing` export is the
interface of this package.
"""

from offramp import aio, errors, protocol, tracing
from offramp.answers import Answer, SettleResult, SettleStatus
from offramp.batches import Batch
from offramp.channel import AccessOptions, open_channel
from offramp.consumer import Consumer, connect
from offramp.errors import OfframpError
from offramp.messages import Message, Place
from offramp.options import ConnectOptions
from offramp.processes import Processes
from offramp.publisher import Publisher
from offramp.records import Header, Record
from offramp.verdicts import Overloaded, Reject, Release, Retry
from offramp.worker import Handler, Worker

__version__ = protocol.VERSION

__all__ = [
    "AccessOptions",
    "Answer",
    "Batch",
    "ConnectOptions",
    "Consumer",
    "Handler",
    "Header",
    "Message",
    "OfframpError",
    "Overloaded",
    "Place",
    "Processes",
    "Publisher",
    "Record",
    "Reject",
    "Release",
    "Retry",
    "SettleResult",
    "SettleStatus",
    "Worker",
    "__version__",
    "aio",
    "connect",
    "errors",
    "open_channel",
    "protocol",
    "tracing",
]

"""The Python client of Offramp: take batches from the sidecar, and settle them.

    from offramp import Worker

    def handle(batch):
        for record in batch:
            print(record.value)

    Worker("orders", handle, workers=8).run()

What `offramp`, `offramp.aio`, `offramp.errors` and `offramp.tracing` export is the interface of this package.

    worker       Worker: a handler in threads
    processes    Processes: a handler in processes
    consumer     connect, Consumer: iterate over batches
    publisher    Publisher, Message, Place: send messages
    aio          Worker, connect and Publisher for asyncio
    batch        Batch, Record, Header
    outcomes     Retry, Reject, Release, Overloaded: what a handler raises to settle its batch
    answers      Answer, SettleResult, SettleStatus: what the sidecar answers to a settlement
    errors       all errors, as one tree
    tracing      continues the traces of producers, with OpenTelemetry
    options      ConnectOptions: the keyword arguments of consumers and workers
    channel      AccessOptions, open_channel: the address, the credentials, and plain gRPC channels for generated stubs
    protocol     versions and defaults
    v1           generated from proto/offramp/v1
    _internal    what these are built on
"""

from offramp import aio, errors, protocol, tracing
from offramp.answers import Answer, SettleResult, SettleStatus
from offramp.batch import Batch, Header, Record
from offramp.channel import AccessOptions, open_channel
from offramp.consumer import Consumer, connect
from offramp.errors import OfframpError
from offramp.options import ConnectOptions
from offramp.outcomes import Overloaded, Reject, Release, Retry
from offramp.processes import Processes
from offramp.publisher import Message, Place, Publisher
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

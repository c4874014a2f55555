"""A session of the client without a connection, for tests of what it counts and costs."""

from typing import Any

import offramp
from offramp._internal.inbox import TaskInbox
from offramp._internal.outbox import Outbox, PendingSettlement, Wakeup
from offramp._internal.session import Session
from offramp.options import Options
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2


class Offline:
    """A session with all that belongs to it but the stream: responses are handed in, and requests are answered."""

    def __init__(self, *, credit: int = 2_000, patience: float = 3600.0) -> None:
        self.outbox = Outbox(None)
        self.inbox = TaskInbox()
        self.wakeup = Wakeup()
        options = Options(subscription="orders", credit=credit, address="unix:/nowhere", patience=patience)
        self.session = Session(options, self, self.inbox, self.outbox, self.wakeup, lambda welcome: None)
        self.inbox.on_wait = self.session.on_wait

    def ack(self, batch: offramp.Batch, *, automatic: bool) -> Any:
        return self._settle(PendingSettlement(batch, None, automatic=automatic))

    def settle(self, batch: offramp.Batch, settlement: record_pb2.Settlement, *, automatic: bool) -> Any:
        return self._settle(PendingSettlement(batch, settlement, automatic=automatic))

    def extend(self, batch: offramp.Batch, seconds: float) -> Any:
        raise AssertionError

    def _settle(self, pending: PendingSettlement) -> Any:
        self.outbox.settle(pending)
        self.wakeup.wake()
        return pending.answer

    def receive(self, *, batches: int, records: int) -> None:
        """These batches come."""
        record = record_pb2.Record(value=b"value")
        delivered = [
            record_pb2.Batch(lease=b"lease %4d" % number, records=[record] * records) for number in range(batches)
        ]
        self.session._on_response(pb.ConsumeResponse(batches=delivered))

    async def take(self, count: int) -> list[offramp.Batch]:
        taken = [await self.inbox.take() for _ in range(count)]
        return [batch for batch in taken if batch is not None]

    def requests(self) -> list[pb.ConsumeRequest]:
        """All that is to be sent now. Nothing is answered."""
        encoded = iter(self.session._next_request, None)
        return [pb.ConsumeRequest.FromString(one) for one in encoded if one is not None]

    def send(self) -> list[record_pb2.Settlement]:
        """What is sent next, which is then answered."""
        encoded = self.session._next_request()
        assert encoded is not None
        sent = [*pb.ConsumeRequest.FromString(encoded).settlements]
        results = [record_pb2.SettleResult(lease=one.lease, status=record_pb2.SETTLE_STATUS_SETTLED) for one in sent]
        self.session._on_response(pb.ConsumeResponse(results=results))
        return sent

"""A session over one stream: `ConsumerService.Consume`."""

import asyncio
from collections.abc import Callable, Sequence

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import InvalidRequest, ProtocolError, Stopping
from sidecar.model.records import Credit, Delivery, Notice, SessionEnd
from sidecar.server.grpc import encode, session_end
from sidecar.server.grpc.clients import Terms, read_credit
from sidecar.server.grpc.outbox import Outbox
from sidecar.server.grpc.registry import SubscriptionRegistry
from sidecar.server.grpc.rpc import Context, parse, read
from sidecar.server.grpc.settlements import read_settlements
from sidecar.server.grpc.writer import Writer
from sidecar.subscription.subscription import Subscription

METHOD = "Consume"
#: seconds that a write may take which is under way when the client breaks a rule
_LAST_WRITE = 1.0


async def read_hello(context: Context) -> pb.ConsumeRequest:
    """The first request of a stream, which says who is there."""
    raw = await read(context)
    if raw is None:
        raise InvalidRequest(f"{METHOD}: the stream ended before its first request, which must carry hello")
    request = parse(pb.ConsumeRequest, raw, METHOD)
    if not request.HasField("hello"):
        raise InvalidRequest(f"{METHOD}: the first request must carry hello")
    return request


class Stream:
    """One client's stream: one task reads it, one writes it, and both end with it."""

    def __init__(
        self,
        context: Context,
        writer: Writer,
        subscription: Subscription,
        directory: SubscriptionRegistry,
        terms: Terms,
    ) -> None:
        self._context = context
        self._writer = writer
        self._subscription = subscription
        self._directory = directory
        self._outbox = Outbox(terms.max_message_bytes)
        self._session = subscription.connect(
            self,
            client=terms.client,
            # The first request's credit is granted when its settlements have been read.
            credit=Credit(0),
            max_message_bytes=terms.max_message_bytes,
            lease=terms.lease,
        )
        self._stopping = False

    def deliver(self, delivery: Delivery) -> None:
        self._outbox.add_delivery(delivery)
        if self._outbox.full:
            self._session.set_backpressure(True)

    def notify(self, notice: Notice) -> None:
        self._outbox.add_answer(encode.notice(encode.CONSUME_NOTICES, notice))

    def stop(self) -> None:
        """The sidecar stops: end the stream with UNAVAILABLE once everything is written that was answered."""
        self._stopping = True
        self._outbox.close()

    async def run(self, first: pb.ConsumeRequest, welcome: Callable[[bytes], pb.Welcome]) -> None:
        """Returns when the client has left in order; is cancelled when it is gone."""
        how = SessionEnd.LOST
        tasks: list[asyncio.Task[None]] = []
        try:
            welcomed = welcome(self._session.id).SerializeToString()
            self._outbox.add_answer(encode.field(encode.CONSUME_WELCOME, welcomed))
            self._apply(first, first.credit if first.HasField("credit") else first.hello.credit)
            tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
            await asyncio.gather(*tasks)
            how = SessionEnd.ORDERLY
        except ProtocolError:
            await self._finish_writing(tasks[1:])
            raise
        finally:
            for task in tasks:
                task.cancel()
            session_end.end(self._subscription, self._session, how, unseen=self._outbox.take_back())

    async def _finish_writing(self, writing: Sequence[asyncio.Task[None]]) -> None:
        """gRPC drops a status that is sent while a write is under way, even if that is cancelled, and the client would
        wait for ever. A client that does not read is not waited for."""
        self._session.stop_deliveries()
        self._outbox.close()
        if writing:
            await asyncio.wait(writing, timeout=_LAST_WRITE)

    async def _read(self) -> None:
        while (raw := await read(self._context)) is not None:
            request = parse(pb.ConsumeRequest, raw, METHOD)
            if request.HasField("hello"):
                raise InvalidRequest(f"{METHOD}: only the first request may carry hello")
            self._apply(request, request.credit if request.HasField("credit") else None)
            await self._outbox.room()
        self._leave()
        self._outbox.close()

    async def _write(self) -> None:
        while await self._outbox.filled():
            frame, leases = self._outbox.take()
            if not self._outbox.full:
                self._session.set_backpressure(False)
            await self._writer.write(frame)
            if leases:
                self._subscription.written(leases)
        if self._stopping:
            raise Stopping("the sidecar is stopping")
        # gRPC gives the same end of stream to a half-close and to a client that died. Only a write tells them
        # apart: it fails, or this task is cancelled, when nobody is there. An empty response says nothing.
        await self._writer.write(b"")

    def _apply(self, request: pb.ConsumeRequest, credit: pb.Credit | None) -> None:
        answer = self._outbox.add_answer
        if request.settlements:
            for result in self._directory.settle(read_settlements(request.settlements)):
                answer(encode.settle_result(encode.CONSUME_RESULTS, result))
        for extension in request.extensions:
            extended = self._directory.extend(extension.lease, extension.lease_for_ms / 1_000)
            answer(encode.extend_result(encode.CONSUME_EXTENDED, extended))
        if request.draining:
            self._leave()
        elif credit is not None:
            # Last, because settling makes room for it.
            self._session.grant(read_credit(credit))

    def _leave(self) -> None:
        """The client wants no further batch, not even one that is on its way."""
        self._session.stop_deliveries()
        session_end.release(self._subscription, self._outbox.take_back())

"""Workers on the `Consume` stream as it is shipped, from the bytes of a request to those of a response.

gRPC's transport is simulated: it passes bytes, in order, until one side is gone. A client may take its time to read.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, cast

from offramp.v1 import consumer_pb2 as pb
from sidecar.model.errors import Stalled, Stopping
from sidecar.model.records import SessionEnd, Settlement
from sidecar.server.grpc.consumer.consume_stream import MAX_BATCH_BYTES, ConsumeStream
from sidecar.server.grpc.consumer.resumption import ResumableSessions
from sidecar.server.grpc.consumer.sessions import read_terms
from sidecar.server.grpc.rpc import Context
from sidecar.server.grpc.slow_clients import StreamWriter
from tests.simulation.checked_subscription import CheckedSubscription
from tests.simulation.checker.checker import Checker
from tests.simulation.checker.promises import Promise
from tests.simulation.neighbour import Neighbour
from tests.simulation.workers.messages import as_proto
from tests.simulation.workers.streaming import Worker

#: seconds that a write may take, and those for which a client that does not read stops now and then
_WRITE_TIMEOUT, _STALLS = 4.0, (0.1, 1.0, 10.0)
#: seconds within which settlements are sent together
_TOGETHER = 0.05


class _Transport:
    """One stream of gRPC, as the sidecar sees it."""

    def __init__(self, client: "StreamWorker") -> None:
        self._client = client
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, request: pb.ConsumeRequest) -> None:
        self._requests.put_nowait(request.SerializeToString())

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    async def read(self) -> bytes | None:
        return await self._requests.get()

    async def write(self, response: bytes) -> None:
        await self._client.reads()
        if response:
            self._client.received(pb.ConsumeResponse.FromString(response))


class StreamWorker(Worker):
    """One app process with a client library: it settles several batches in one request."""

    def __init__(self, *args: Any, checker: Checker, neighbour: Neighbour, **named: Any) -> None:
        super().__init__(*args, **named)
        self._truth = checker
        self._neighbour = neighbour
        self._transport: _Transport | None = None
        self._stream: ConsumeStream | None = None
        self._task: asyncio.Task[None] | None = None
        self._stalls = self.world.rng.choice((0.0, 0.0, 0.05))
        #: settlements that are not sent yet
        self._unsent: list[Settlement] = []
        self._sending = False
        #: leases of what was sent on this stream, and is not answered
        self._unanswered: deque[bytes] = deque()

    # Connecting

    def connect(self) -> None:
        subscription = self._current()
        if subscription is None or self._task is not None:
            self.later(0.3, self.connect)
            return
        hello = pb.Hello(
            subscription=subscription.settings.name,
            client=pb.Client(name=self.name),
            credit=pb.Credit(batches=self.credit.batches, bytes=self.credit.bytes),
            max_message_bytes=self.max_message_bytes,
            lease_ms=round((self.lease or 0) * 1_000),
        )
        self._life += 1
        self._unanswered.clear()
        self._transport = _Transport(self)
        self._task = self.world.loop.create_task(self._run(subscription, self._transport, hello))

    async def _run(self, subscription: CheckedSubscription, transport: _Transport, hello: pb.Hello) -> None:
        context = cast(Context, transport)
        try:
            with StreamWriter(context, _WRITE_TIMEOUT) as writer:
                directory, terms = subscription.directory, read_terms(hello)
                stream = ConsumeStream(context, writer, subscription, directory, terms, ResumableSessions(0.0))
                self._stream, self.session = stream, stream._session
                await stream.run(pb.ConsumeRequest(hello=hello), lambda session, _: pb.Welcome(session=session.id))
        except Stopping:
            pass
        except Stalled:
            self.world.exercised("a client does not read")
        finally:
            if self._transport is transport:
                self._task = self._transport = self._stream = self.session = None
                self.busy.clear()
                self.later(self.world.rng.uniform(0.0, 1.0), self.connect)

    def leave(self, how: SessionEnd) -> None:
        transport, task = self._transport, self._task
        if transport is None or task is None:
            return
        if how is SessionEnd.ORDERLY:
            transport.half_close()
            return
        self.busy.clear()
        # What comes later is of the next stream.
        self._task = self._transport = self._stream = self.session = None
        task.cancel()
        self.later(self.world.rng.uniform(0.0, 1.0), self.connect)

    def leave_soon(self) -> None:
        self._stalls = 0.0
        super().leave_soon()

    def sidecar_died(self) -> None:
        task, self._task = self._task, None
        self._transport = self._stream = None
        if task is not None:
            task.cancel()
        super().sidecar_died()

    # The client's side of the stream

    async def reads(self) -> None:
        """Returns when the client has read."""
        rng = self.world.rng
        if rng.random() < self._stalls:
            await asyncio.sleep(rng.choice(_STALLS))
        elif rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0.0, 0.02))
        self._check_outbox()

    def received(self, response: pb.ConsumeResponse) -> None:
        for result in response.results:
            if not self._unanswered or self._unanswered.popleft() != result.lease:
                self.world.broken(Promise.TRUTHFUL, f"a result out of turn: {result}")
            self._neighbour.answered(result.lease, result.status)
        for batch in response.batches:
            grant = self._truth.grants.get(batch.lease)
            if grant is None:
                continue
            copies = [item.copy for item in grant.items]
            if [(copy.key or b"", copy.value or b"") for copy in copies] != [(r.key, r.value) for r in batch.records]:
                self.world.broken(Promise.PROTOCOL, f"{grant} arrived with other records")
            self.busy[batch.lease] = copies
            self.old.append((batch.lease, len(copies)))
            self.later(self.handler.work(), partial(self._finish, batch.lease, copies, self._life))

    def settle(self, settlement: Settlement) -> None:
        """Sent with others, on whatever stream there is by then."""
        self._unsent.append(settlement)
        if not self._sending:
            self._sending = True
            self.later(self.world.rng.choice((0.0, _TOGETHER)), self._send)

    def _send(self) -> None:
        self._sending = False
        if self._transport is None:
            # The client library tries again when it is connected.
            self._sending = bool(self._unsent)
            if self._unsent:
                self.later(0.3, self._send)
            return
        settlements, self._unsent = [*self._unsent, *self._neighbour.to_settle()], []
        self.world.rng.shuffle(settlements)
        if len(settlements) > 1:
            self.world.exercised("several settlements in a request")
        self._unanswered.extend(settlement.lease for settlement in settlements)
        self._transport.send(pb.ConsumeRequest(settlements=[as_proto(each) for each in settlements]))

    def _check_outbox(self) -> None:
        """Nothing but what the sidecar may have written waits for the client."""
        if self._stream is None:
            return
        outbox = self._stream._outbox
        waiting = sum(batch.size for batch in outbox._batches)
        if waiting != outbox._batches_bytes or waiting > MAX_BATCH_BYTES + self.max_message_bytes:
            self.world.broken(Promise.MEMORY, f"{waiting} bytes wait to be written")

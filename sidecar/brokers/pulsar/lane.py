"""One lane: one consumer of the library, what it has received, and what it must ack."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import _pulsar
import pulsar

from sidecar.brokers.pulsar.client_threads import CLOSE_TIMEOUT, ClientThreads, call_in_loop
from sidecar.brokers.pulsar.errors import of_result
from sidecar.brokers.pulsar.positions import unpack
from sidecar.brokers.pulsar.records import ReceivedBatch, encode_batch
from sidecar.brokers.pulsar.unacked import Acks, UnackedMessages
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Chunk, Commit, Lane

#: limits of one call of `batch_receive`
_BATCH_RECORDS, _BATCH_BYTES = 500, 1 << 20
#: milliseconds that `batch_receive` waits for more after the first message
_LINGER_MS = 1


def receive_policy() -> pulsar.ConsumerBatchReceivePolicy:
    """What one call of `batch_receive` returns. By default the library waits 100 ms for a full batch."""
    return pulsar.ConsumerBatchReceivePolicy(_BATCH_RECORDS, _BATCH_BYTES, _LINGER_MS)


class _Received(NamedTuple):
    """A message, and the state of the lane when it arrived."""

    message: Any
    epoch: int
    seeking: bool


class PulsarLane:
    """Receives in a task of its own, up to a batch ahead of what is taken; the rest waits in the library, and then at
    the broker.

    One message is asked for without a thread; when it arrives, one call in a thread takes all that are there with it.
    So an idle lane costs nothing, and a busy one costs one call for hundreds of messages.
    """

    def __init__(
        self,
        lane: Lane,
        name: str,
        consumer: Any,
        client: ClientThreads,
        *,
        start: int,
        acked_before: bool = True,
        had_before: int = 0,
        exclusive: bool,
        wake: Callable[[], None],
    ) -> None:
        """`acked_before`: the broker has acks for all before `start`. `had_before`: messages before this position may
        have been delivered by an earlier consumer of this sidecar. `wake` is called when there is something to take,
        or when the lane has failed."""
        self.lane = lane
        #: the topic at Pulsar
        self.name = name
        self.unacked = UnackedMessages(ascending=exclusive)
        self.unacked.reset(start, acked_before=acked_before)
        #: why it cannot continue; a new consumer may
        self.failed: BrokerError | None = None
        self._consumer = consumer
        self._client = client
        self._had_before = had_before
        #: no other consumer has any of it at the same time, so messages arrive in order
        self.exclusive = exclusive
        self._wake = wake
        self._paused = False
        self._seeking = False
        #: counts seeks: what was received in an earlier epoch is dropped
        self.epoch = 0
        #: the arguments of the last seek
        self._sought: tuple[Any, int] = (None, 0)
        #: held while receiving a batch, and while seeking
        self._consumer_lock = asyncio.Lock()
        self._may_receive = asyncio.Event()
        self._may_receive.set()
        self._buffer: deque[ReceivedBatch] = deque()
        self._records = 0
        self._acking: set[asyncio.Task[None]] = set()
        self._receiving = asyncio.create_task(self._receive())

    @property
    def ready(self) -> int:
        """The number of records that may be taken now."""
        return 0 if self._paused or self._seeking else self._records

    @property
    def is_connected(self) -> bool:
        """True during a seek, too, which reconnects."""
        return self._seeking or bool(self._consumer.is_connected())

    def pause(self) -> None:
        self._paused = True
        self._control_flow()

    def resume(self) -> None:
        self._paused = False
        self._control_flow()

    def take(self, max_records: int, max_bytes: int, *, at_least: int, possibly_processed: bool) -> Chunk | None:
        """The next records, up to the limits, but at least `at_least` of them."""
        batch = self._buffer[0]
        count, size = 0, 0
        for frame in batch.frames[:max_records]:
            size += len(frame)
            if size > max_bytes and count >= at_least:
                break
            count += 1
        if not count:
            return None
        if count < len(batch.frames):
            self._buffer[0] = batch.cut(count, len(batch.frames))
            batch = batch.cut(0, count)
        else:
            self._buffer.popleft()
        self._records -= count
        self._control_flow()
        return batch.chunk(self.lane, possibly_processed=possibly_processed or batch.positions[0] < self._had_before)

    async def ack(self, commit: Commit) -> None:
        """Acks what a commit covers. Returns once the library has these acks and all earlier ones: it reports no
        receipts. If it does not take them, there is no consumer any more, and the lane has `failed`. Cancelling it
        takes no ack back."""
        acks = self.unacked.take(commit)
        if acks:
            # A task of its own: the caller may give up before a thread is free, and only this task has these acks.
            acking = asyncio.create_task(self._ack_or_fail(acks))
            self._acking.add(acking)
            acking.add_done_callback(self._acking.discard)
        await self._wait_for_acks()

    async def _wait_for_acks(self) -> None:
        if self._acking:
            await asyncio.wait(self._acking)

    async def _ack_or_fail(self, acks: Acks) -> None:
        try:
            await self._client.run(f"ack in {self.name}", self._ack, acks)
        except BrokerError as error:
            self._fail(error)

    def _fail(self, error: BrokerError) -> None:
        self.failed = error
        self._wake()

    async def last_id(self) -> Any:
        return await self._client.run(f"find the end of {self.name}", self._consumer.get_last_message_id)

    async def seek(self, position: int, *, at_end: bool) -> None:
        """Continue at a position. What lies before it in the same entry is acked as it arrives, so that the position is
        exact within a batch, too. `at_end`: nothing in that entry lies after the position, so go to the next entry."""
        ledger, entry, place = unpack(position)
        # Not to Pulsar's own end: it moves if something is published after the caller asked for it.
        to = pulsar.MessageId(-1, ledger, entry + 1 if at_end and place else entry, -1)._msg_id
        async with self._consumer_lock:
            # An earlier ack that arrived after the seek would undo it.
            await self._wait_for_acks()
            await self._seek(to, position)
            self.epoch += 1
        self._control_flow()

    async def _seek(self, to: Any, position: int) -> None:
        self._seeking = True
        try:
            await self._client.run(f"seek in {self.name}", self._consumer.seek, to)
            # Nothing that was received before may be taken after.
            self._buffer.clear()
            self._records = 0
            self.unacked.reset(position, sought=True)
            self._sought = (to, position)
        except BrokerError as error:
            # The broker may or may not have moved: a new consumer will find out.
            self._fail(error)
            raise
        finally:
            self._seeking = False

    async def close(self) -> None:
        """What is not acked goes to other consumers at once. Never raises, and takes a few seconds at most."""
        self._receiving.cancel()
        # `wait`, because awaiting the task would not tell its cancellation from a cancellation of this call.
        await asyncio.wait((self._receiving,))
        if self._acking:
            await asyncio.wait(self._acking, timeout=CLOSE_TIMEOUT)
        await self._client.close_one(self._consumer)

    # Receiving

    async def _receive(self) -> None:
        try:
            more = False
            while True:
                await self._may_receive.wait()
                messages = [] if more else [await self._first_message()]
                epoch = self.epoch
                async with self._consumer_lock:
                    if epoch != self.epoch:
                        # Received before a seek.
                        messages = []
                    batch = await self._client.run(f"receive from {self.name}", self._take_batch, messages)
                    if self.unacked.gone_back:
                        # Only a new consumer gets all that is unacked in its order, and only a new start flags it.
                        raise Unavailable(
                            f"Pulsar: {self.name} goes back to what was acked: acks were lost with a broker, or its "
                            "cursor was reset"
                        )
                    more = len(batch.frames) >= _BATCH_RECORDS
                    if batch.frames:
                        self._put(batch)
        except BrokerError as error:
            self._fail(error)

    async def _first_message(self) -> Any:
        """Waits for the next message."""
        loop = asyncio.get_running_loop()
        while True:
            future: asyncio.Future[_Received] = loop.create_future()
            self._consumer.receive_async(partial(call_in_loop, loop, self._resolve, future))
            message, epoch, seeking = await future
            if seeking:
                # From before the seek or the first after it: nobody can tell. Seek again, with nothing asked for.
                async with self._consumer_lock:
                    if self.failed is not None:
                        raise self.failed
                    await self._seek(*self._sought)
            elif epoch == self.epoch:
                return message

    def _resolve(self, future: "asyncio.Future[_Received]", result: _pulsar.Result, message: Any) -> None:
        if future.done():
            return
        if result == _pulsar.Result.Ok:
            future.set_result(_Received(message, self.epoch, self._seeking))
        else:
            future.set_exception(of_result(result, f"receive from {self.name}"))

    def _take_batch(self, messages: list[Any]) -> ReceivedBatch:
        messages += self._consumer.batch_receive()
        batch = encode_batch(messages, self.lane.number, self.unacked)
        if self.unacked.skipped:
            skipped, self.unacked.skipped = self.unacked.skipped, []
            self._ack(Acks(messages=tuple(skipped)))
        return batch

    def _put(self, batch: ReceivedBatch) -> None:
        self._buffer.append(batch)
        self._records += len(batch.frames)
        self._control_flow()
        self._wake()

    def _control_flow(self) -> None:
        if self._paused or self._records >= _BATCH_RECORDS:
            self._may_receive.clear()
        else:
            self._may_receive.set()

    # Acking

    def _ack(self, acks: Acks) -> None:
        failed: list[_pulsar.Result] = []

        def on_ack(result: _pulsar.Result) -> None:
            if result != _pulsar.Result.Ok:
                failed.append(result)

        if acks.upto is not None:
            self._consumer.acknowledge_cumulative_async(pulsar.MessageId(-1, *acks.upto, -1)._msg_id, on_ack)
        acknowledge = self._consumer.acknowledge_async
        for message in acks.messages:
            acknowledge(message, on_ack)
        if failed:
            raise of_result(failed[0], f"ack in {self.name}")

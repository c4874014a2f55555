"""One lane: one consumer of the library, what it has received, and what it must ack."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import _pulsar
import pulsar

from sidecar.brokers.pulsar.errors import of_result
from sidecar.brokers.pulsar.held import Held, Settled
from sidecar.brokers.pulsar.library import GOODBYE, Library
from sidecar.brokers.pulsar.positions import unpack
from sidecar.brokers.pulsar.records import Taken, encode
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Chunk, Commit, Lane

#: most that is received at a time
_BATCH_RECORDS, _BATCH_BYTES = 500, 1 << 20
#: milliseconds to wait for more than the first message
_LINGER_MS = 1


def receive_policy() -> pulsar.ConsumerBatchReceivePolicy:
    """How much one call of `batch_receive` gives. Without it the library waits a tenth of a second for a full batch."""
    return pulsar.ConsumerBatchReceivePolicy(_BATCH_RECORDS, _BATCH_BYTES, _LINGER_MS)


class _Came(NamedTuple):
    """A message, and when it came."""

    message: Any
    epoch: int
    seeking: bool


class PulsarLane:
    """Receives by itself, up to a batch ahead of what is taken; the rest waits in the library, and then at the broker.

    The library is asked for one message without a thread, and when that comes for all that are there with it: so a
    lane without messages costs nothing, and a busy one costs one call for hundreds.
    """

    def __init__(
        self,
        lane: Lane,
        name: str,
        consumer: Any,
        library: Library,
        *,
        start: int,
        acked_before: bool = True,
        had_before: int = 0,
        exclusive: bool,
        wake: Callable[[], None],
    ) -> None:
        """`acked_before`: the broker has acks for all before `start`. What lies before `had_before` was delivered by an
        earlier consumer of this sidecar, perhaps."""
        self.lane = lane
        #: the topic as Pulsar calls it
        self.name = name
        self.held = Held(ascending=exclusive)
        self.held.clear(start, acked_before=acked_before)
        #: why it cannot go on; a new consumer may
        self.failed: BrokerError | None = None
        self._consumer = consumer
        self._library = library
        self._had_before = had_before
        #: no other consumer has any of it at the same time, and so it comes in order
        self.exclusive = exclusive
        self._wake = wake
        self._paused = False
        self._seeking = False
        #: ends with a seek: what was received in an earlier one is dropped
        self._epoch = 0
        #: where the last seek went
        self._sought: tuple[Any, int] = (None, 0)
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._room.set()
        self._buffer: deque[Taken] = deque()
        self._records = 0
        self._acking: set[asyncio.Task[None]] = set()
        self._receiving = asyncio.create_task(self._receive())

    @property
    def epoch(self) -> int:
        """Another one after each seek."""
        return self._epoch

    @property
    def ready(self) -> int:
        """Records that may be taken now."""
        return 0 if self._paused or self._seeking else self._records

    @property
    def is_connected(self) -> bool:
        """A seek connects anew, which is no trouble."""
        return self._seeking or bool(self._consumer.is_connected())

    def pause(self) -> None:
        self._paused = True
        self._regulate()

    def resume(self) -> None:
        self._paused = False
        self._regulate()

    def take(self, max_records: int, max_bytes: int, *, at_least: int, possibly_processed: bool) -> Chunk | None:
        """What has arrived first, up to the limits, but `at_least` so many records."""
        taken = self._buffer[0]
        count, size = 0, 0
        for frame in taken.frames[:max_records]:
            size += len(frame)
            if size > max_bytes and count >= at_least:
                break
            count += 1
        if not count:
            return None
        if count < len(taken.frames):
            self._buffer[0] = taken.cut(count, len(taken.frames))
            taken = taken.cut(0, count)
        else:
            self._buffer.popleft()
        self._records -= count
        self._regulate()
        return taken.chunk(self.lane, possibly_processed=possibly_processed or taken.positions[0] < self._had_before)

    async def ack(self, commit: Commit) -> None:
        """Ack what a commit covers. Returns when the library has taken it, and all before: it tells no receipts. If it
        does not take it, there is no consumer any more, and the lane has `failed`. Cancelling it takes nothing back."""
        settled = self.held.take(commit)
        if settled:
            # Of its own, since who waits may give up before there is a thread, and nobody else knows of these any more.
            acking = asyncio.create_task(self._ack_or_fail(settled))
            self._acking.add(acking)
            acking.add_done_callback(self._acking.discard)
        await self._acked()

    async def _acked(self) -> None:
        """All acks are with the library."""
        if self._acking:
            await asyncio.wait(self._acking)

    async def _ack_or_fail(self, settled: Settled) -> None:
        try:
            await self._library.run(f"ack in {self.name}", self._ack, settled)
        except BrokerError as error:
            self.failed = error
            self._wake()

    async def last_id(self) -> Any:
        return await self._library.run(f"find the end of {self.name}", self._consumer.get_last_message_id)

    async def seek(self, position: int, *, at_end: bool) -> None:
        """Go on at a position. What lies before it in the same entry is acked as it arrives, so that the place is exact
        within a batch, too. `at_end`: nothing of that entry lies after it, and so the next one comes, when it does."""
        ledger, entry, place = unpack(position)
        # Not to Pulsar's own end: that has moved if something was published since this one was found.
        to = pulsar.MessageId(-1, ledger, entry + 1 if at_end and place else entry, -1)._msg_id
        async with self._turn:
            # An ack of before that came after it would take it back.
            await self._acked()
            await self._seek(to, position)
            self._epoch += 1
        self._regulate()

    async def _seek(self, to: Any, position: int) -> None:
        self._seeking = True
        try:
            await self._library.run(f"seek in {self.name}", self._consumer.seek, to)
            # Nothing that was received before may be taken after.
            self._buffer.clear()
            self._records = 0
            self.held.clear(position, sought=True)
            self._sought = (to, position)
        except BrokerError as error:
            # Perhaps the broker has moved and perhaps not: a new consumer will see.
            self.failed = error
            self._wake()
            raise
        finally:
            self._seeking = False

    async def close(self) -> None:
        """What is not acked goes to others at once. Never raises, and takes seconds at the most."""
        self._receiving.cancel()
        # Not by its result: who cancels this would not be told from who has cancelled that.
        await asyncio.wait((self._receiving,))
        if self._acking:
            await asyncio.wait(self._acking, timeout=GOODBYE)
        await self._library.leave(self._consumer)

    # Receiving

    async def _receive(self) -> None:
        try:
            more = False
            while True:
                await self._room.wait()
                messages = [] if more else [await self._first()]
                epoch = self._epoch
                async with self._turn:
                    if epoch != self._epoch:
                        # Of before a seek.
                        messages = []
                    taken = await self._library.run(f"receive from {self.name}", self._take_batch, messages)
                    if self.held.gone_back:
                        # Only a new consumer gets all that is not acked in its order, and only a new start flags it.
                        raise Unavailable(
                            f"Pulsar: {self.name} goes back to what was acked: acks were lost with a broker, or its "
                            "cursor was reset"
                        )
                    more = len(taken.frames) >= _BATCH_RECORDS
                    if taken.frames:
                        self._put(taken)
        except BrokerError as error:
            self.failed = error
            self._wake()

    async def _first(self) -> Any:
        """The next message, when there is one."""
        loop = asyncio.get_running_loop()
        while True:
            future: asyncio.Future[_Came] = loop.create_future()

            def came(result: _pulsar.Result, message: Any, future: "asyncio.Future[_Came]" = future) -> None:
                # Called in a thread of the library; an exception there would end the process.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._resolve, future, result, message)

            self._consumer.receive_async(came)
            message, epoch, seeking = await future
            if seeking:
                # Of before the seek, or the first of after it: nobody can tell. Once more, with nothing asked for.
                async with self._turn:
                    if self.failed is not None:
                        raise self.failed
                    await self._seek(*self._sought)
            elif epoch == self._epoch:
                return message

    def _resolve(self, future: "asyncio.Future[_Came]", result: _pulsar.Result, message: Any) -> None:
        if future.done():
            return
        if result == _pulsar.Result.Ok:
            future.set_result(_Came(message, self._epoch, self._seeking))
        else:
            future.set_exception(of_result(result, f"receive from {self.name}"))

    def _take_batch(self, messages: list[Any]) -> Taken:
        messages += self._consumer.batch_receive()
        taken = encode(messages, self.lane.number, self.held)
        if self.held.passed_over:
            passed_over, self.held.passed_over = self.held.passed_over, []
            self._ack(Settled(messages=tuple(passed_over)))
        return taken

    def _put(self, taken: Taken) -> None:
        self._buffer.append(taken)
        self._records += len(taken.frames)
        self._regulate()
        self._wake()

    def _regulate(self) -> None:
        if self._paused or self._records >= _BATCH_RECORDS:
            self._room.clear()
        else:
            self._room.set()

    # Acking

    def _ack(self, settled: Settled) -> None:
        failed: list[_pulsar.Result] = []

        def told(result: _pulsar.Result) -> None:
            if result != _pulsar.Result.Ok:
                failed.append(result)

        if settled.upto is not None:
            self._consumer.acknowledge_cumulative_async(pulsar.MessageId(-1, *settled.upto, -1)._msg_id, told)
        acknowledge = self._consumer.acknowledge_async
        for message in settled.messages:
            acknowledge(message, told)
        if failed:
            raise of_result(failed[0], f"ack in {self.name}")

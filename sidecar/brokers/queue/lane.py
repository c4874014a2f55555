"""One lane of a group: its receiver, the task that reads from it, and what it holds."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Generic

from sidecar.brokers.base import Advanced, LaneEnd, LaneEvent, Lost, SourceSpec, Traits
from sidecar.brokers.queue.arrivals import Arrivals
from sidecar.brokers.queue.credit import Credit
from sidecar.brokers.queue.driver import Driver, H, HandlesLost, Received, Receiver
from sidecar.brokers.queue.held import HeldMessages, first_position
from sidecar.brokers.queue.parked import Shelf, Wait, Waits
from sidecar.core.failures import retry_topic
from sidecar.core.failures.backoff import Backoff
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, LaneGone
from sidecar.model.records import Assigned, Chunk, Commit, Lane, Message, Record, Start
from sidecar.observability.logs import Log

log = Log("queue")

#: seconds that one `receive` may wait
_RECEIVE_TIMEOUT = 1.0
#: seconds that closing may wait for the broker
CLOSE_TIMEOUT = 2.0
#: the first and the longest wait in seconds after failures
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0
#: bytes to ask for before the first poll has said how much it wants
_FIRST_SIZE = 64 << 10
#: the share of the broker's limits on deliveries and on holding at which something is done
_SHARE = 0.5
_WARN_SHARE = 0.8


class QueueLane(Generic[H]):
    """Receives in a task of its own, one call ahead of what is taken; the rest waits at the broker.

    When the handles of a receiver are void, its epoch is over: the lane is reported as lost, with all that is in hand,
    and assigned again once there is another receiver. Nothing of an earlier epoch is settled by a later one.
    """

    def __init__(
        self,
        lane: Lane,
        spec: SourceSpec,
        driver: Driver[H],
        traits: Traits,
        clock: Clock,
        tell: Callable[[LaneEvent], None],
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when there is something to take."""
        self.lane = lane
        #: why it does not receive; empty while it does
        self.trouble = ""
        #: what it was last polled for, its share of all lanes: how much it receives ahead
        self.size = _FIRST_SIZE
        self.end: LaneEnd | None = None
        self._spec = spec
        self._driver = driver
        self._traits = traits
        self._clock = clock
        self._tell = tell
        self._wake = wake
        #: the topic is the group's retry topic: its messages may have to wait
        self._parked = lane.topic in spec.own_topics
        self._arrivals = Arrivals(lane, flag_all=not traits.tells_first_deliveries)
        self._credit = Credit(driver.most_records)
        self._backoff = Backoff(_FIRST_WAIT, 2.0, _LONGEST_WAIT, 0.2, random.Random())
        #: None: the next one is to be made
        self._receiver: Receiver[H] | None = None
        #: counts receivers
        self._epoch = 0
        self._held: HeldMessages[H] = HeldMessages(0)
        self._shelf: Shelf[H] = Shelf(0.0)
        #: receivers of earlier epochs, to be closed
        self._void: list[Receiver[H]] = []
        self._lost_before = 0
        self._paused = False
        self._closing = asyncio.Event()
        self._may_receive = asyncio.Event()
        #: one ack and one return at a time
        self._settling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Makes the first receiver. Raises what `Driver.receiver` raises."""
        await self._begin()

    def start(self) -> None:
        self._spawn(self._receive_all())

    @property
    def ready(self) -> int:
        """The number of records that may be taken now."""
        return 0 if self._paused else self._arrivals.records

    @property
    def troubles(self) -> dict[str, str]:
        """What an operator should know, by kind."""
        found = dict(self._receiver.troubles) if self._receiver is not None else {}
        found["limit"] = self._near_limit()
        return found

    def take(self, max_records: int, max_bytes: int, at_least: int) -> Chunk | None:
        """The next records, up to the limits, but at least `at_least` of them."""
        if self._held.in_doubt(self._clock.now()):
            self._arrivals.flag()
        chunk = self._arrivals.take(max_records, max_bytes, at_least)
        self._control_flow()
        return chunk

    def pause(self) -> None:
        self._paused = True
        self._control_flow()
        if self._receiver is not None:
            self._spawn(self._pause(self._receiver))

    def resume(self) -> None:
        self._paused = False
        self._control_flow()

    async def ack(self, commit: Commit) -> None:
        """Acks what a commit covers. Returns once the broker has it. Raises `LaneGone` if there is another epoch by
        then, and `Unavailable`. Cancelling it takes nothing back."""
        # A task of its own: no call of a driver is cancelled.
        await asyncio.shield(self._spawn(self._ack(commit, self._epoch)))

    async def measure(self) -> None:
        """Looks how much is in the queue. Raises what `Driver.depth` raises."""
        depth = await self._driver.depth(self.lane, self._spec.group)
        backlog = -1 if depth.waiting < 0 else depth.waiting + max(0, depth.held)
        self.end = LaneEnd(0, self._held.next, backlog)

    async def close(self) -> None:
        """Gives back what it holds. Never raises, and takes a few seconds at most."""
        self._closing.set()
        self._control_flow()
        receiver = self._receiver
        if receiver is not None:
            self._spawn(self._stop(receiver))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_RECEIVE_TIMEOUT + CLOSE_TIMEOUT)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if receiver is not None and receiver is self._receiver:
            handles = [*self._held.take_all(), *(message.handle for message in self._shelf.take_all())]
            if handles:
                with contextlib.suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await receiver.give_back(handles, 0.0)
            self._void.append(receiver)
            self._receiver = None
        await self._close_void()

    # Epochs

    async def _begin(self) -> None:
        await self._close_void()
        # The group's own topic has always been there for it: nothing in it may be passed over.
        start = Start.EARLIEST if self._parked else self._spec.start
        receiver = await self._driver.receiver(self.lane, self._spec.group, start)
        receiver.sole_reader = self._parked
        position = 0 if self._driver.numbered else max(self._held.next, first_position(self._clock.wall_ms()))
        self._receiver = receiver
        self._epoch += 1
        self._held = HeldMessages(position, receiver.renew_every)
        self._shelf = Shelf(receiver.limits.hold)
        self._lost_before = 0
        first = receiver.first and self._epoch == 1
        self._tell(Assigned(self.lane, position, first=first, chunks_tell=True))
        if receiver.renew_every is not None:
            self._spawn(self._renew_all(receiver, self._held, receiver.renew_every))
        self._control_flow()

    def _end(self, receiver: Receiver[H], error: BrokerError) -> None:
        """The handles of a receiver are void."""
        if receiver is not self._receiver:
            return
        log.warning("a queue is joined again", group=self._spec.group, lane=str(self.lane), error=error)
        self.trouble = str(error)
        self._receiver = None
        self._void.append(receiver)
        self._arrivals.clear()
        self._tell(Lost(frozenset((self.lane,))))
        self._control_flow()

    async def _close_void(self) -> None:
        void, self._void = self._void, []
        for receiver in void:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await receiver.close()

    # Receiving

    async def _receive_all(self) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                if self._receiver is None:
                    await self._begin()
                await self._wait_for_room()
                if self._receiver is not None and not self._closing.is_set():
                    await self._receive(self._receiver)
                failures, self.trouble = 0, ""
            except BrokerError as error:
                failures += 1
                self.trouble = str(error)
                self._wake()
                await self._sleep(self._backoff.wait(failures))

    async def _wait_for_room(self) -> None:
        """Returns when there is something to do."""
        while not self._may_receive.is_set():
            # What is kept on the shelf is looked at as time goes by.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RECEIVE_TIMEOUT if len(self._shelf) else None):
                    await self._may_receive.wait()
            if self._receiver is not None and not self._closing.is_set():
                await self._look_at_shelf(self._receiver)

    async def _receive(self, receiver: Receiver[H]) -> None:
        if len(self._shelf):
            await self._look_at_shelf(receiver)
        asked = self._credit.next(self.size)
        try:
            messages = await receiver.receive(asked, self.size, _RECEIVE_TIMEOUT)
        except HandlesLost as error:
            self._end(receiver, error)
            raise
        if receiver is not self._receiver:
            return
        if receiver.lost > self._lost_before:
            # No position: what was received before may wait here still.
            self._tell(Advanced(self.lane, 0, receiver.lost - self._lost_before))
            self._lost_before = receiver.lost
        if messages and (self._parked or receiver.limits.deliveries):
            await self._sort(receiver, messages, asked)
        elif messages:
            self._credit.received(asked, self._deliver(messages))

    def _deliver(self, messages: Sequence[Received[H]]) -> list[int]:
        positions = self._held.add(messages, self._clock.now())
        sizes = self._arrivals.add(messages, positions)
        self._control_flow()
        self._wake()
        return sizes

    def _control_flow(self) -> None:
        """Receives while less is here than it would ask for. A lane without a receiver makes one, also while it is
        paused: that brings back what it held."""
        room = not self._paused and not self._arrivals.records and not self._shelf.full
        if room or self._receiver is None or self._closing.is_set():
            self._may_receive.set()
        else:
            self._may_receive.clear()

    async def _pause(self, receiver: Receiver[H]) -> None:
        with contextlib.suppress(BrokerError):
            await receiver.pause()

    async def _stop(self, receiver: Receiver[H]) -> None:
        with contextlib.suppress(BrokerError):
            await receiver.stop()

    # What the broker would take away: see `parked`

    async def _sort(self, receiver: Receiver[H], messages: Sequence[Received[H]], asked: int) -> None:
        """Delivers what can be delivered. The rest goes back to the broker, or is kept on the shelf."""
        self._held.aside += len(messages)
        deliver: list[Received[H]] = []
        others: list[tuple[Received[H], Wait, float]] = []
        waits = Waits(receiver.limits.hold, self._driver.longest_return_delay, self._driver.longest_delay)
        wall_ms = self._clock.wall_ms()
        for message in messages:
            wait = retry_topic.seconds_until_due(message.headers, wall_ms) if self._parked else 0.0
            choice = waits.choose(wait)
            if self._spec.own_topics and _is_near_limit(message, receiver.limits.deliveries):
                choice = Wait.PUBLISH
            if choice is Wait.DELIVER:
                deliver.append(message)
            elif choice is Wait.KEEP:
                self._shelf.add(message, wait, self._clock.now())
            else:
                others.append((message, choice, wait))
        self._held.aside -= len(deliver)
        self._credit.received(asked, self._deliver(deliver))
        for message, choice, wait in others:
            if receiver is not self._receiver:
                return
            if choice is Wait.GIVE_BACK:
                await self._give_back(receiver, message, min(wait, self._driver.longest_return_delay))
            else:
                await self._publish_anew(receiver, message, wait)

    async def _look_at_shelf(self, receiver: Receiver[H]) -> None:
        now = self._clock.now()
        if due := self._shelf.due(now):
            self._held.aside -= len(due)
            self._deliver(due)
        for message in self._shelf.held_too_long(now):
            await self._publish_anew(
                receiver, message, retry_topic.seconds_until_due(message.headers, self._clock.wall_ms())
            )
        self._control_flow()

    async def _give_back(self, receiver: Receiver[H], message: Received[H], delay: float) -> None:
        try:
            async with self._settling:
                await receiver.give_back([message.handle], delay)
            self._held.aside -= 1
        except HandlesLost as error:
            self._end(receiver, error)
        except BrokerError:
            self._deliver_after_all(receiver, message)

    async def _publish_anew(self, receiver: Receiver[H], message: Received[H], wait: float) -> None:
        """Publishes a copy, of which the broker knows nothing yet, and acks the original."""
        try:
            lane, copy = self._copy(message)
            await self._driver.publish(lane, [replace(copy, deliver_after=min(wait, self._driver.longest_delay))])
            async with self._settling:
                await receiver.ack([message.handle], 0)
            self._held.aside -= 1
        except HandlesLost as error:
            self._end(receiver, error)
        except BrokerError as error:
            log.warning("a message cannot be published anew", lane=str(self.lane), error=error)
            self._deliver_after_all(receiver, message)

    def _deliver_after_all(self, receiver: Receiver[H], message: Received[H]) -> None:
        """The broker did not take it back: better late than never."""
        if receiver is self._receiver:
            self._held.aside -= 1
            self._deliver([message])

    def _copy(self, message: Received[H]) -> tuple[Lane, Message]:
        """Of a parked message as it is; of another one as a record in the retry topic, for this group alone."""
        if self._parked:
            headers = tuple(message.headers)
            return self.lane, Message(
                message.key, message.value, headers, timestamp_ms=message.timestamp_ms, aside=True
            )
        own = next(iter(self._spec.own_topics))
        record = Record(
            message.key,
            message.value,
            tuple(message.headers),
            self.lane.number,
            self._held.skip(),
            message.timestamp_ms,
            message.ref,
        )
        copy = retry_topic.rescued(
            record, self.lane.topic, "", deliveries=message.delivered_before + 1, wall_ms=self._clock.wall_ms()
        )
        return Lane(own, copy.lane or 0), copy

    def _near_limit(self) -> str:
        """The trouble of a message that is held for nearly as long as the broker lets it."""
        if self._receiver is None:
            return ""
        limit, held = self._receiver.limits.hold, self._held.oldest(self._clock.now())
        if held < limit * _WARN_SHARE:
            return ""
        return (
            f"{self.lane}: a record is held for {held:.0f} s, and the broker delivers it again after {limit:.0f} s. "
            "Settle sooner, or let the broker wait longer"
        )

    # Settling and renewing

    async def _ack(self, commit: Commit, epoch: int) -> None:
        async with self._settling:
            receiver, held = self._receiver, self._held
            if receiver is None or self._epoch != epoch:
                raise LaneGone([self.lane])
            acks = held.covered(commit)
            not_ours: Sequence[int] = ()
            if acks.handles:
                try:
                    not_ours = await receiver.ack(acks.handles, acks.cumulative)
                except HandlesLost as error:
                    self._end(receiver, error)
                    raise LaneGone([self.lane]) from error
            held.settle(commit, acks, not_ours)

    async def _renew_all(self, receiver: Receiver[H], held: HeldMessages[H], every: float) -> None:
        """Ends with the epoch."""
        while receiver is self._receiver and not self._closing.is_set():
            # Often enough that nothing is renewed much too late.
            await self._sleep(every / 4)
            now = self._clock.now()
            renewal = held.due(now + every / 4)
            if not renewal.handles or receiver is not self._receiver:
                continue
            try:
                handles = await receiver.renew(renewal.handles)
                held.renewed(renewal, handles, self._clock.now())
                if None in handles and receiver is self._receiver:
                    self._arrivals.flag()
            except HandlesLost as error:
                self._end(receiver, error)
            except BrokerError as error:
                log.warning("messages cannot be renewed", lane=str(self.lane), error=error)
                held.not_renewed(renewal, now)

    # Tasks

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until it is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BrokerError):
            log.bug("a task of a queue failed", error, lane=str(self.lane))


def _is_near_limit(message: Received[Any], deliveries: int) -> bool:
    """Whether the broker drops the message after a few more deliveries. A new message is not near any limit."""
    return deliveries > 0 and message.delivered_before + 1 >= max(2, int(deliveries * _SHARE + 0.5))

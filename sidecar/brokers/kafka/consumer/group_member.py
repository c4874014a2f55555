"""A member of one group, as the event loop sees it."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from sidecar.brokers.base import LaneEnd, SeekTarget, SourceSpec
from sidecar.brokers.kafka import properties
from sidecar.brokers.kafka.broadcast import sieve
from sidecar.brokers.kafka.consumer.background_queries import Errands
from sidecar.brokers.kafka.consumer.commits import Request
from sidecar.brokers.kafka.consumer.health import Health
from sidecar.brokers.kafka.consumer.poll_thread import Member
from sidecar.brokers.kafka.consumer.start_position import Locating, resolve
from sidecar.brokers.kafka.errors import OF_ONE_BROKER, says_fenced, translate
from sidecar.brokers.kafka.joining import connector
from sidecar.brokers.kafka.lanes import Reading
from sidecar.brokers.kafka.listener import UnknownProtocol
from sidecar.brokers.kafka.offset_client import Clerk
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.model.errors import BrokerError, LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Commit, Lane, Start
from sidecar.observability.logs import Log
from sidecar.settings import Bytes

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

log = Log("kafka")

#: seconds before a member that failed is replaced
_REJOIN = 5.0
#: seconds that closing may take: leaving a group needs the broker, which may be gone
_LAST = 8.0
#: bytes that the library may have ready of a retry topic
_RETRY_BUFFER = Bytes(1 << 20)


class Group:
    """What it does and raises is what the contract says of a `Source`; its methods are called as those are."""

    def __init__(self, broker: "KafkaBroker", spec: SourceSpec, shelf: Shelf, wake: asyncio.Event) -> None:
        """`shelf` is where records and events are put; `wake` is set when there is a failure."""
        self.spec = spec
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop
        self._shelf = shelf
        self._clerk: Clerk | None = None
        self._locating: Locating
        self._errands: Errands
        self._member: Member | None = None
        self._protocol = GroupProtocol.AUTO
        self._wake = wake
        self._paused: set[Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.health = Health(spec.group, broker.reasons, self._shelf.tell, broker.ping)
        #: why nothing is consumed until the member is replaced
        self._failure: BrokerError | None = None
        #: why nothing ever will
        self._dead: BrokerError | None = None
        self._closing = False
        self._looks_at_topics = False
        #: what was asked of the thread
        self._unanswered: dict[asyncio.Future[None], Collection[Lane]] = {}
        #: the thread has ended
        self._over = asyncio.Event()

    async def open(self) -> None:
        broker = self._broker
        self._loop = asyncio.get_running_loop()
        if self._clerk is None:
            self._clerk = Clerk(broker.options, self.spec.group, broker.reasons, broker.chatter)
            self._locating = Locating(self.spec, broker.admin, self._clerk, broker.options.out_of_range, self._pin)
            self._errands = Errands(self._locating, self._clerk, broker.admin, self._shelf, self._joined)
        if self.spec.start is Start.LATEST:
            await self._locating.pin_ends()
        self._join()
        self._spawn(self.health.watch)
        self._spawn(self._errands.look_at, self._paused)

    @property
    def failure(self) -> BrokerError | None:
        """Why nothing comes."""
        return self._dead or self._failure or self.health.failure

    @property
    def refetched_bytes(self) -> int:
        return self._member.waste.bytes if self._member is not None else 0

    @property
    def revoke_seconds(self) -> float:
        return self._member.revoke_seconds if self._member is not None else 0.0

    def want(self, max_records: int, max_bytes: int) -> None:
        """The core takes so much at a time, and may have taken something just now."""
        self._joined().want(max_records, max_bytes)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        await self._commit(
            {lane: (commit.position, self._locating.metadata(lane, commit)) for lane, commit in commits.items()}
        )

    def begin_anew(self, lanes: Collection[Lane]) -> None:
        """Lose lanes, and begin them again as soon as Kafka lets us."""
        self._joined().begin_anew(lanes)

    def release(self, lanes: Collection[Lane]) -> None:
        if self._member is not None:
            self._member.release(lanes)

    def pause(self, lanes: Collection[Lane]) -> None:
        self._paused.update(lanes)
        # At once, for what is fetched already; the thread sees to the rest in a moment.
        self._shelf.pause(lanes)
        self._joined().pause(lanes)

    def resume(self, lanes: Collection[Lane]) -> None:
        self._paused.difference_update(lanes)
        self._shelf.resume(lanes)
        self._joined().resume(lanes)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        unknown = [str(lane) for lane in lanes if lane not in self._joined().ends]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)} here.")
        return await self._move(await resolve(self._broker.admin, lanes))

    def ends(self) -> Mapping[Lane, LaneEnd]:
        return self._joined().ends

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                if self._member is not None:
                    self._member.stop()
                    await self._over.wait()
                if self._clerk is not None:
                    await self._clerk.close()

    # Joining.

    def _join(self) -> None:
        broker, options = self._broker, self._broker.options
        on_trial = broker.protocol is GroupProtocol.AUTO
        self._protocol = protocol = GroupProtocol.CONSUMER if on_trial else broker.protocol

        self._member = Member(
            connector(self._options(), broker.chatter, self.spec.group, protocol, on_trial=on_trial),
            [*self.spec.topics, *self.spec.own_topics],
            self._shelf,
            self,
            grace=min(float(options.grace), properties.max_poll_interval(options) / 10),
            on_trial=on_trial,
            sieve=sieve(self.spec.own_topics, properties.instance_of(options)) if options.broadcast else None,
        )
        self._member.start()
        # With the other protocol the broker knows topics by their ids, and lanes of another one are assigned anew.
        if protocol is GroupProtocol.CLASSIC and not self._looks_at_topics:
            self._looks_at_topics = True
            self._spawn(self._errands.look_at_topics)

    def _options(self) -> KafkaOptions:
        """There is little in a retry topic, mostly: the room is for the others."""
        options = self._broker.options
        return options if self.spec.topics else replace(options, fetch_buffer=min(_RETRY_BUFFER, options.fetch_buffer))

    def _joined(self) -> Member:
        if self._member is None:
            raise Unavailable("The source is not open.")
        return self._member

    # What the poll thread tells. It is handed to the event loop.

    def arrived(self, readings: list[Reading]) -> None:
        self._call(self._broker.settle_protocol, self._protocol)
        if readings:
            self._call(self._welcome, readings)

    def watch(self, request: Request) -> None:
        self._call(self._spawn, self._errands.confirm, request)

    def strayed(self, reading: Reading) -> None:
        self._call(self._spawn, self._errands.lead_back, reading)

    def failed(self, error: KafkaError, topic: str | None) -> None:
        self._broker.reasons.heard(error)
        # While no broker is up, each try tells one of these: nobody is to be woken for it.
        if error.code() not in OF_ONE_BROKER:
            self._call(self._heard, error, topic)

    def ended(self, error: BaseException | None) -> None:
        self._call(self._ended, error)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        # The loop may be closed already: then nobody waits.
        with contextlib.suppress(RuntimeError, AttributeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        if not self._closing:
            task = self._loop.create_task(work(*args))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a task of the Kafka source failed", error)
            self._dead = Refused(f"Kafka: cannot go on: {error!r}")
            self._wake.set()

    def _ended(self, error: BaseException | None) -> None:
        if isinstance(error, UnknownProtocol) and not self._closing:
            log.info("the broker does not know the group protocol `consumer`: using `classic`")
            self._broker.settle_protocol(GroupProtocol.CLASSIC)
            self._join()
            return
        self._over.set()
        for waiting, lanes in self._unanswered.items():
            # The thread will not come to it any more.
            if not waiting.done():
                waiting.set_exception(LaneGone(lanes))
        if error is None or self._closing:
            return
        if isinstance(error, KafkaException):
            told = translate(error, "consume")
            if not says_fenced(error.args[0]):
                self._failure = told
                self._spawn(self._rejoin)
                return
        elif isinstance(error, BrokerError):
            told = error
        else:
            log.bug("the poll thread failed", error)
            told = Refused(f"Kafka: cannot go on: {error!r}")
        self._dead = told
        self._wake.set()

    async def _rejoin(self) -> None:
        """Something ended the member that may be over: the earlier life of a static one, say."""
        self._wake.set()
        await asyncio.sleep(_REJOIN)
        self._failure = None
        self._over.clear()
        self._join()

    # Trouble.

    def _welcome(self, readings: list[Reading]) -> None:
        self.health.assigned({reading.lane.topic for reading in readings})
        self._spawn(self._errands.welcome, readings)

    def _heard(self, error: KafkaError, topic: str | None) -> None:
        self.health.heard(error, topic)
        self._wake.set()

    # Positions.

    async def _pin(self, offsets: Mapping[Lane, tuple[int, str]]) -> None:
        await self._commit(offsets, pins=True)

    async def _commit(self, offsets: Mapping[Lane, tuple[int, str]], *, pins: bool = False) -> None:
        def ask(done: "asyncio.Future[None]") -> None:
            self._joined().commit(Request(offsets, lambda error: self._call(_answer, done, error), done.done, pins))

        await self._asked(offsets.keys(), ask)

    async def _asked(self, lanes: Collection[Lane], ask: Callable[["asyncio.Future[None]"], None]) -> None:
        """Ask something of the thread and wait until it is answered; `LaneGone` if the thread ends before."""
        if self._over.is_set():
            raise LaneGone(lanes)
        done: asyncio.Future[None] = self._loop.create_future()
        self._unanswered[done] = lanes
        try:
            ask(done)
            await done
        finally:
            del self._unanswered[done]

    async def _move(self, positions: Mapping[Lane, int]) -> Mapping[Lane, int]:
        gone: frozenset[Lane] = frozenset()
        try:
            await self.commit({lane: Commit(position) for lane, position in positions.items()})
        except LaneGone as error:
            # Kafka has the positions of the others.
            gone = error.lanes
        left = {lane: position for lane, position in positions.items() if lane not in gone}
        if left:
            move = self._joined().move
            await self._asked(positions.keys(), lambda done: move(left, lambda: self._call(_answer, done, None)))
        if gone:
            raise LaneGone(gone)
        return positions


def _answer(done: "asyncio.Future[None]", error: BrokerError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)

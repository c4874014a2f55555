"""One group's consumption of Kafka, as the event loop sees it."""

import asyncio
import contextlib
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.admin._listoffsets import OffsetSpec

from sidecar.brokers.base import (
    AtPosition,
    AtTime,
    LaneEnd,
    Polled,
    SeekTarget,
    SeekTo,
    Source,
    SourceSpec,
    Start,
    Trouble,
)
from sidecar.brokers.kafka import properties
from sidecar.brokers.kafka.clerk import Clerk, Stored
from sidecar.brokers.kafka.commits import Request
from sidecar.brokers.kafka.errors import translate
from sidecar.brokers.kafka.lanes import Reading
from sidecar.brokers.kafka.member import Member, UnknownProtocol
from sidecar.brokers.kafka.metadata import Stamp, encode
from sidecar.brokers.kafka.options import GroupProtocol, OutOfRange
from sidecar.brokers.kafka.shelf import Shelf
from sidecar.brokers.kafka.starting import Beginning, beginning, lost_between
from sidecar.errors import BrokerError, NotFound, Refused, Unavailable
from sidecar.logs import Log
from sidecar.model import Commit, Lane

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

log = Log("kafka")

#: seconds between tries while the broker cannot be asked
_AGAIN = 0.5
#: seconds between looks whether the broker is back
_PING = 1.0
#: seconds that closing may take: leaving a group needs the broker, which may be gone
_LAST = 8.0


class KafkaSource(Source):
    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self.spec = spec
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop
        self._shelf = Shelf(self._stocked)
        self._clerk: Clerk | None = None
        self._member: Member | None = None
        self._wake = asyncio.Event()
        self._signalled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids: dict[str, str] = {}
        self._failure: BrokerError | None = None
        self._pinging = False
        self._closing = False
        self._over = asyncio.Event()

    @property
    def _patterns(self) -> list[str]:
        return [topic for topic in self.spec.topics if topic.startswith("^")]

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._prepare_topics()
        if self._clerk is None:
            options = self._broker.options
            self._clerk = Clerk(options, self.spec.group, self._broker.reasons, self._broker.chatter)
        if self.spec.start is Start.LATEST:
            await self._pin_ends()
        self._join()

    async def poll(self, max_records: int, max_bytes: int, timeout: float) -> Polled:
        member = self._joined()
        deadline = self._loop.time() + timeout
        while True:
            self._signalled = False
            self._wake.clear()
            if self._shelf:
                polled = self._shelf.take(max_records, max_bytes)
                member.want((max_records, max_bytes))
                if polled.chunks or polled.events:
                    return polled
            else:
                member.want((max_records, max_bytes))
            if self._failure is not None:
                raise type(self._failure)(*self._failure.args)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return Polled()

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        offsets = {lane: (commit.position, self._metadata(lane, commit)) for lane, commit in commits.items()}
        await self._commit(offsets)

    async def release(self, lanes: Collection[Lane]) -> None:
        if self._member is not None:
            self._member.release(lanes)

    async def pause(self, lanes: Collection[Lane]) -> None:
        # At once, for what is fetched already; the thread sees to the rest in a moment.
        self._shelf.pause(lanes)
        self._joined().pause(lanes)

    async def resume(self, lanes: Collection[Lane]) -> None:
        self._shelf.resume(lanes)
        self._joined().resume(lanes)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        unknown = [str(lane) for lane in lanes if lane not in self._joined().ends]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)} here.")
        positions = await self._resolve(lanes)
        # Shielded: once Kafka has the new positions, the lanes must be moved, too.
        return await asyncio.shield(asyncio.ensure_future(self._seek(positions)))

    async def ends(self) -> Mapping[Lane, LaneEnd]:
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

    async def _prepare_topics(self) -> None:
        """Raises `NotFound` if there is nothing to consume at all."""
        broker, plain = self._broker, [topic for topic in self.spec.topics if not topic.startswith("^")]
        for pattern in self._patterns:
            for topic in self.spec.own_topics:
                if re.match(pattern, topic):
                    raise Refused(f"The pattern {pattern!r} fits {topic!r}, which is the group's own: narrow it.")
        if broker.options.create_topics:
            for topic in plain:
                await broker.ensure_topic(topic, -1)
        for topic, lanes in self.spec.own_topics.items():
            await broker.ensure_topic(topic, lanes)
        found = await broker.admin.topics(plain)
        missing = [topic for topic in plain if topic not in found]
        if missing and len(missing) == len(plain) and not self._patterns:
            raise NotFound(f"There is no topic {', '.join(map(repr, missing))}. Make it, or set `create_topics`.")
        for topic in missing:
            self._shelf.tell(Trouble(f"topic {topic}", f"There is no topic {topic!r}; the others are consumed."))

    async def _pin_ends(self) -> None:
        """A new group at the end: its first members must agree on where that is, and nobody has delivered anything."""
        assert self._clerk is not None
        plain = [topic for topic in self.spec.topics if topic not in self.spec.own_topics]
        found = await self._broker.admin.topics(await self._broker.admin.fitting(plain))
        lanes = [Lane(topic.name, number) for topic in found.values() for number in range(topic.lanes)]
        known = {lane.topic for lane in await self._clerk.stored(lanes)}
        new = [lane for lane in lanes if lane.topic not in known]
        ends = await self._broker.admin.ends(new)
        await self._clerk.pin({lane: end.end for lane, end in ends.items()})

    def _join(self) -> None:
        broker, options = self._broker, self._broker.options
        on_trial = broker.protocol is GroupProtocol.AUTO
        protocol = GroupProtocol.CONSUMER if on_trial else broker.protocol

        def connect(callbacks: Mapping[str, Any]) -> Consumer:
            conf = {**properties.member(options, self.spec.group, protocol), **callbacks}
            try:
                return Consumer(conf, logger=broker.chatter.logger)
            except KafkaException as error:
                if on_trial:
                    raise UnknownProtocol from error
                raise translate(error, "use the settings") from error

        self._protocol = protocol
        self._member = Member(
            connect,
            [*self.spec.topics, *self.spec.own_topics],
            self._shelf,
            self,
            grace=min(float(options.grace), properties.max_poll_interval(options) / 10),
            on_trial=on_trial,
            sieve=self._sieve if options.broadcast else None,
        )
        self._member.start()

    def _joined(self) -> Member:
        if self._member is None:
            raise Unavailable("The source is not open.")
        return self._member

    def _sieve(self, messages: list[Message]) -> list[Message]:
        """Pods of a broadcast share the retry topic: each takes what it has put there."""
        from sidecar.brokers.kafka.broker import INSTANCE_HEADER  # noqa: PLC0415

        mine = properties.instance_of(self._broker.options).encode()
        kept = []
        for message in messages:
            if message.error() is None and message.topic() in self.spec.own_topics:
                headers = [*(message.headers() or ())]
                if (INSTANCE_HEADER, mine) not in headers:
                    continue
                message.set_headers([header for header in headers if header[0] != INSTANCE_HEADER])
            kept.append(message)
        return kept

    # What the poll thread tells. It hands it to the event loop.

    def arrived(self, readings: list[Reading]) -> None:
        self._call(self._broker.settle_protocol, self._protocol)
        if readings:
            self._call(lambda: self._spawn(self._welcome(readings)))

    def strayed(self, reading: Reading) -> None:
        self._call(lambda: self._spawn(self._lead_back(reading)))

    def failed(self, error: BrokerError) -> None:
        self._call(self._note_failure, error)

    def ended(self, error: BaseException | None) -> None:
        self._call(self._ended, error)

    def _stocked(self) -> None:
        if not self._signalled:
            self._signalled = True
            self._call(self._wake.set)

    def _call(self, function: Any, *args: Any) -> None:
        # The loop may be closed already: then nobody waits.
        with contextlib.suppress(RuntimeError, AttributeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closing:
            work.close()
            return
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a task of the Kafka source failed", error)

    def _ended(self, error: BaseException | None) -> None:
        if isinstance(error, UnknownProtocol) and not self._closing:
            log.info("the broker does not know the group protocol `consumer`; using `classic`")
            self._broker.settle_protocol(GroupProtocol.CLASSIC)
            self._join()
            return
        if error is not None and not self._closing:
            known = isinstance(error, BrokerError)
            if not known:
                log.bug("the poll thread failed", error)
            self._failure = error if isinstance(error, BrokerError) else Refused(f"Kafka: cannot go on: {error!r}")
            self._wake.set()
        self._over.set()

    def _note_failure(self, error: BrokerError) -> None:
        if isinstance(error, Refused | NotFound):
            self._failure = error
            self._wake.set()
        else:
            self._shelf.tell(Trouble("broker", str(error)))
        if not self._pinging:
            self._pinging = True
            self._spawn(self._ping())

    async def _ping(self) -> None:
        """Until the broker answers again."""
        while True:
            await asyncio.sleep(_PING)
            with contextlib.suppress(BrokerError):
                await self._broker.admin.connect()
                break
        self._pinging = False
        self._failure = None
        self._shelf.tell(Trouble("broker", ""))

    # Where lanes start.

    async def _welcome(self, readings: Collection[Reading]) -> None:
        """Find out where lanes start that were assigned. Tried until it is known or they are gone."""
        trouble = f"lanes {', '.join(str(reading.lane) for reading in readings)}"
        failed = False
        while here := [reading for reading in readings if self._joined().has(reading)]:
            try:
                self._joined().begin(await self._beginnings(here))
            except BrokerError as error:
                failed = True
                self._shelf.tell(Trouble(trouble, f"where to start is not known: {error}"))
                await asyncio.sleep(_AGAIN)
                continue
            break
        if failed:
            self._shelf.tell(Trouble(trouble, ""))

    async def _beginnings(self, readings: Iterable[Reading]) -> dict[Reading, Beginning]:
        assert self._clerk is not None
        by_lane = {reading.lane: reading for reading in readings}
        for topic in (await self._broker.admin.topics({lane.topic for lane in by_lane})).values():
            self._ids[topic.name] = topic.id
        ends = await self._broker.admin.ends(by_lane)
        stored = await self._clerk.stored(by_lane)
        new = {lane: await self._start(lane, ends[lane]) for lane in by_lane if lane not in stored}
        if new:
            # Before anything is delivered, so that no later life starts anywhere else.
            await self._commit({lane: (position, "") for lane, position in new.items()}, pins=True)
        return {
            reading: beginning(
                *stored.get(lane, Stored(new.get(lane, 0), None)),
                Stamp(self._broker.admin.cluster, self._ids.get(lane.topic, "")),
                ends[lane],
                self._broker.options.out_of_range,
                first=lane in new,
            )
            for lane, reading in by_lane.items()
        }

    async def _start(self, lane: Lane, end: LaneEnd) -> int:
        """Where the group starts in a lane that it was never in."""
        if self.spec.start is Start.EARLIEST or lane.topic in self.spec.own_topics:
            return end.start
        # A lane that was added to a topic that is consumed already: all of it is new.
        assert self._clerk is not None
        topic = await self._broker.admin.topic(lane.topic)
        known = await self._clerk.stored([Lane(lane.topic, number) for number in range(topic.lanes)])
        return end.start if known else end.end

    async def _lead_back(self, reading: Reading) -> None:
        """The position of a lane is not there any more: find out where to go on."""
        while self._joined().has(reading):
            try:
                end = (await self._broker.admin.ends([reading.lane]))[reading.lane]
            except BrokerError as error:
                log.warning("where to go on is not known", lane=reading.lane, error=error)
                await asyncio.sleep(_AGAIN)
                continue
            earliest = self._broker.options.out_of_range is OutOfRange.EARLIEST
            position = reading.next
            at = position
            if not end.start <= position <= end.end:
                at = end.start if earliest else end.end
            lost = lost_between(position, at) if at > position else 0
            self._joined().restart(reading, Beginning(position, (), False, end, at, lost))
            return

    # Positions.

    def _metadata(self, lane: Lane, commit: Commit) -> str:
        topic_id = self._ids.get(lane.topic)
        return encode(Stamp(self._broker.admin.cluster, topic_id), commit) if topic_id and commit.beyond else ""

    async def _commit(self, offsets: Mapping[Lane, tuple[int, str]], *, pins: bool = False) -> None:
        done: asyncio.Future[None] = self._loop.create_future()

        def settle(error: BrokerError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        request = Request(offsets, lambda error: self._call(settle, error), done.done, pins)
        self._joined().commit(request)
        await done

    async def _resolve(self, lanes: Mapping[Lane, SeekTarget]) -> dict[Lane, int]:
        ends = await self._broker.admin.ends(lanes)
        times = {lane: target.timestamp_ms for lane, target in lanes.items() if isinstance(target, AtTime)}
        found = await self._broker.admin.offsets({lane: OffsetSpec.for_timestamp(ms) for lane, ms in times.items()})
        positions: dict[Lane, int] = {}
        for lane, target in lanes.items():
            end = ends[lane]
            match target:
                case SeekTo.START:
                    positions[lane] = end.start
                case SeekTo.END:
                    positions[lane] = end.end
                case AtPosition(position):
                    positions[lane] = max(end.start, min(position, end.end))
                case AtTime():
                    positions[lane] = found[lane] if found[lane] >= 0 else end.end
        return positions

    async def _seek(self, positions: Mapping[Lane, int]) -> Mapping[Lane, int]:
        await self._commit({lane: (position, "") for lane, position in positions.items()})
        moved = asyncio.Event()
        self._joined().move(positions, lambda: self._call(moved.set))
        await moved.wait()
        return positions

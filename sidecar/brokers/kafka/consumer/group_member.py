"""The member of one group, on the event loop. Starts the poll thread, replaces it, and acts on what it reports."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from sidecar.brokers.base import LaneEnd, SeekTarget, SourceSpec
from sidecar.brokers.kafka.consumer.background_queries import BackgroundQueries
from sidecar.brokers.kafka.consumer.commits import CommitRequest, Offsets
from sidecar.brokers.kafka.consumer.health import Health
from sidecar.brokers.kafka.consumer.poll_thread import PollThread, UnknownProtocol
from sidecar.brokers.kafka.consumer.position_control import LaneReader
from sidecar.brokers.kafka.consumer.start_position import OffsetLookup
from sidecar.brokers.kafka.errors import OF_ONE_BROKER, says_fenced, translate
from sidecar.brokers.kafka.offset_client import OffsetClient
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions, fetcher_properties, member_properties
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.brokers.kafka.records import instance_filter
from sidecar.model.errors import BrokerError, LaneGone, NotFound, Refused, Unavailable
from sidecar.model.records import Commit, Lane, Run, Start
from sidecar.observability.logs import Log
from sidecar.settings import Bytes

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

log = Log("kafka")

#: seconds before a poll thread that failed is replaced
_REJOIN_INTERVAL = 5.0
#: seconds that closing may take: leaving a group needs the broker, which may be away
_CLOSE_TIMEOUT = 8.0
#: memory of the library for records of a retry topic
_RETRY_BUFFER = Bytes(1 << 20)


class GroupMember:
    """Its methods do and raise what the contract says of a `Source`. It receives the `PollThreadEvents`."""

    def __init__(self, broker: "KafkaBroker", spec: SourceSpec, buffer: PollBuffer, wake: asyncio.Event) -> None:
        """Records and events go to `buffer`. `wake` is set when there is a failure."""
        self.spec = spec
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop
        self._buffer = buffer
        self._offset_client: OffsetClient | None = None
        #: lanes in which the group has a position and that it does not consume; None: not asked yet
        self._left: set[Lane] | None = None
        self._lookup: OffsetLookup
        self._queries: BackgroundQueries
        self._poll_thread: PollThread | None = None
        self._protocol = GroupProtocol.AUTO
        self._wake = wake
        self._paused: set[Lane] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.health = Health(spec.group, broker.clients.recent_errors, self._buffer.add_event, broker.ping)
        #: why nothing is consumed until the poll thread is replaced
        self._failure: BrokerError | None = None
        #: why nothing is ever consumed again
        self._fatal: BrokerError | None = None
        self._closing = False
        self._watches_topics = False
        #: pending requests to the poll thread, with their lanes
        self._requests: dict[asyncio.Future[None], Collection[Lane]] = {}
        self._thread_ended = asyncio.Event()

    async def open(self) -> None:
        broker = self._broker
        self._loop = asyncio.get_running_loop()
        if self._offset_client is None:
            client = self._offset_client = OffsetClient(broker.clients, self.spec.group)
            self._lookup = OffsetLookup(self.spec, broker.admin, client, broker.options.out_of_range, self._pin)
            self._queries = BackgroundQueries(self._lookup, client, broker.admin, self._buffer, self._thread)
        if self.spec.start is Start.LATEST:
            await self._lookup.pin_ends()
        self._join()
        self._spawn(self.health.watch)
        self._spawn(self._queries.watch_paused_ends, self._paused)

    @property
    def failure(self) -> BrokerError | None:
        """Why no records come; None if nothing is wrong."""
        return self._fatal or self._failure or self.health.failure

    @property
    def refetched_bytes(self) -> int:
        return self._poll_thread.refetch_meter.bytes if self._poll_thread is not None else 0

    @property
    def revoke_seconds(self) -> float:
        return self._poll_thread.revoke_seconds if self._poll_thread is not None else 0.0

    def set_limits(self, max_records: int, max_bytes: int) -> None:
        """What the core takes at a time. It may have taken something just now."""
        self._thread().set_limits(max_records, max_bytes)

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        await self._commit(
            {lane: (commit.position, self._lookup.metadata(lane, commit)) for lane, commit in commits.items()}
        )

    def restart_lanes(self, lanes: Collection[Lane]) -> None:
        """Lose lanes, and start them again as soon as Kafka allows it."""
        self._thread().restart_lanes(lanes)

    def release(self, lanes: Collection[Lane]) -> None:
        if self._poll_thread is not None:
            self._poll_thread.release(lanes)

    def pause(self, lanes: Collection[Lane]) -> None:
        self._paused.update(lanes)
        # At once, for records that are buffered; the thread stops fetching a moment later.
        self._buffer.pause(lanes)
        self._thread().pause(lanes)

    def resume(self, lanes: Collection[Lane]) -> None:
        self._paused.difference_update(lanes)
        self._buffer.resume(lanes)
        self._thread().resume(lanes)

    async def seek(self, lanes: Mapping[Lane, SeekTarget]) -> Mapping[Lane, int]:
        unknown = [str(lane) for lane in lanes if lane not in self._thread().ends]
        if unknown:
            raise NotFound(f"Group {self.spec.group!r} has no lane {', '.join(unknown)} here.")
        return await self._move(await self._broker.admin.resolve(lanes))

    def ends(self) -> Mapping[Lane, LaneEnd]:
        return self._thread().ends

    async def left_behind(self) -> Mapping[Lane, Run]:
        admin, client = self._broker.admin, self._offset_client
        if client is None:
            raise Unavailable(f"Group {self.spec.group!r} is not open.")
        if self._left is None:
            # Asked once for all lanes of the cluster, which may be many. Nobody else leaves a topic without a restart.
            consumed = {*self.spec.topics, *self.spec.own_topics}
            others = [lane for lane in await admin.lanes() if lane.topic not in consumed]
            self._left = set(await client.stored(others))
        existing = await admin.topics({lane.topic for lane in self._left})
        left = {lane for lane in self._left if lane.topic in existing}
        stored, ends = await client.stored(left), await admin.ends(left)
        runs = {lane: Run(max(each.position, ends[lane].start), ends[lane].end) for lane, each in stored.items()}
        return {lane: run for lane, run in runs.items() if run.start < run.stop}

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                if self._poll_thread is not None:
                    self._poll_thread.stop()
                    await self._thread_ended.wait()
                if self._offset_client is not None:
                    await self._offset_client.close()

    # Joining.

    def _join(self) -> None:
        options = self._options()
        trying = self._broker.protocol is GroupProtocol.AUTO
        self._protocol = protocol = GroupProtocol.CONSUMER if trying else self._broker.protocol
        only_mine = instance_filter(self.spec.own_topics, options.instance_name) if options.broadcast else None
        self._poll_thread = PollThread(
            lambda callbacks: self._connect(
                {**member_properties(options, self.spec.group, protocol), **callbacks}, trying
            ),
            lambda callbacks: self._connect({**fetcher_properties(options, self.spec.group), **callbacks}, False),
            [*self.spec.topics, *self.spec.own_topics],
            self._buffer,
            self,
            grace=min(float(options.grace), options.max_poll_interval / 10),
            trying_protocol=trying,
            instance_filter=only_mine,
        )
        self._poll_thread.start()
        # With the other protocol the broker knows topics by their ids, and reassigns the lanes of a recreated topic.
        if protocol is GroupProtocol.CLASSIC and not self._watches_topics:
            self._watches_topics = True
            self._spawn(self._queries.watch_topics)

    def _options(self) -> KafkaOptions:
        """A retry topic mostly has few records: leave the memory to the other topics."""
        options = self._broker.options
        return options if self.spec.topics else replace(options, fetch_buffer=min(_RETRY_BUFFER, options.fetch_buffer))

    def _connect(self, conf: dict[str, Any], trying_protocol: bool) -> Consumer:
        """On the poll thread."""
        try:
            return self._broker.clients.create(Consumer, conf)
        except BrokerError as error:
            if trying_protocol:
                # The settings may be right for the other protocol.
                raise UnknownProtocol from error
            raise

    def _thread(self) -> PollThread:
        if self._poll_thread is None:
            raise Unavailable("The source is not open.")
        return self._poll_thread

    # Events of the poll thread, on that thread. They are passed to the event loop.

    def assigned(self, readers: list[LaneReader]) -> None:
        self._call(self._broker.settle_protocol, self._protocol)
        if readers:
            self._call(self._on_assigned, readers)

    def query_commit(self, request: CommitRequest) -> None:
        self._call(self._spawn, self._queries.confirm_commit, request)

    def check_commit(self, request: CommitRequest, lanes: Collection[Lane]) -> None:
        self._call(self._spawn, self._queries.check_commit, request, lanes)

    def position_lost(self, reader: LaneReader) -> None:
        self._call(self._spawn, self._queries.recover_position, reader)

    def failed(self, error: KafkaError, topic: str | None) -> None:
        self._broker.clients.recent_errors.add(error)
        # While no broker is up, each connection attempt reports one of these: do not wake the event loop for it.
        if error.code() not in OF_ONE_BROKER:
            self._call(self._on_error, error, topic)

    def ended(self, error: BaseException | None) -> None:
        self._call(self._on_thread_ended, error)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        # The loop may be closed already; then nobody waits.
        with contextlib.suppress(RuntimeError, AttributeError):
            self._loop.call_soon_threadsafe(function, *args)

    # The same on the event loop.

    def _on_assigned(self, readers: list[LaneReader]) -> None:
        self.health.assigned({reader.lane.topic for reader in readers})
        self._spawn(self._queries.resolve_starts, readers)

    def _on_error(self, error: KafkaError, topic: str | None) -> None:
        self.health.on_error(error, topic)
        self._wake.set()

    def _on_thread_ended(self, error: BaseException | None) -> None:
        if isinstance(error, UnknownProtocol) and not self._closing:
            log.info("the broker does not support the group protocol `consumer`: using `classic`")
            self._broker.settle_protocol(GroupProtocol.CLASSIC)
            self._join()
            return
        self._thread_ended.set()
        for request, lanes in self._requests.items():
            if not request.done():
                request.set_exception(LaneGone(lanes))
        if error is None or self._closing:
            return
        if isinstance(error, KafkaException):
            failure = translate(error, "consume")
            if not says_fenced(error.args[0]):
                self._failure = failure
                self._spawn(self._rejoin)
                return
        elif isinstance(error, BrokerError):
            failure = error
        else:
            log.bug("the poll thread failed", error)
            failure = Refused(f"Kafka: cannot continue: {error!r}")
        self._fatal = failure
        self._wake.set()

    async def _rejoin(self) -> None:
        """What ended the poll thread may be over, such as the previous run of a static member."""
        self._wake.set()
        await asyncio.sleep(_REJOIN_INTERVAL)
        self._failure = None
        self._thread_ended.clear()
        self._join()

    def _spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        if not self._closing:
            task = self._loop.create_task(work(*args))
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.bug("a background task of the Kafka source failed", error)
            self._fatal = Refused(f"Kafka: cannot continue: {error!r}")
            self._wake.set()

    # Requests to the poll thread.

    async def _pin(self, offsets: Offsets) -> None:
        await self._commit(offsets, pins=True)

    async def _commit(self, offsets: Offsets, *, pins: bool = False) -> None:
        def send(done: "asyncio.Future[None]") -> None:
            request = CommitRequest(offsets, lambda error: self._call(_resolve, done, error), done.done, pins)
            self._thread().commit(request)

        await self._request(offsets.keys(), send)

    async def _request(self, lanes: Collection[Lane], send: Callable[["asyncio.Future[None]"], None]) -> None:
        """Returns when the thread resolves the future; raises `LaneGone` if the thread ends before."""
        if self._thread_ended.is_set():
            raise LaneGone(lanes)
        done: asyncio.Future[None] = self._loop.create_future()
        self._requests[done] = lanes
        try:
            send(done)
            await done
        finally:
            del self._requests[done]

    async def _move(self, positions: Mapping[Lane, int]) -> Mapping[Lane, int]:
        gone: frozenset[Lane] = frozenset()
        try:
            await self.commit({lane: Commit(position) for lane, position in positions.items()})
        except LaneGone as error:
            # Kafka has the positions of the others.
            gone = error.lanes
        left = {lane: position for lane, position in positions.items() if lane not in gone}
        if left:
            move = self._thread().move
            await self._request(positions.keys(), lambda done: move(left, lambda: self._call(_resolve, done, None)))
        if gone:
            raise LaneGone(gone)
        return positions


def _resolve(done: "asyncio.Future[None]", error: BrokerError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)

"""The contract's Broker on the embedded broker."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sidecar.brokers.base import AtPosition, AtTime, Broker, LaneEnd, SeekTarget, SeekTo, SourceSpec, Trouble
from sidecar.brokers.local.catalog import LaneView
from sidecar.brokers.local.disk_space import DiskReserve
from sidecar.brokers.local.folder import Folder
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.queries import LaneQuery, ReaderThreads, first_at_time, read_lane
from sidecar.brokers.local.range_cursor import LocalCursor
from sidecar.brokers.local.schema import open_database
from sidecar.brokers.local.source import LocalSource
from sidecar.brokers.local.sqlite_errors import damaged, translate
from sidecar.brokers.local.writer import Store, Writer
from sidecar.model.clock import Clock
from sidecar.model.errors import BrokerError, NotFound, OutOfRoom, Refused, TooLarge, Unavailable
from sidecar.model.records import Chunk, Lane, Message, Place, Run
from sidecar.observability.logs import Log

P = ParamSpec("P")
T = TypeVar("T")

log = Log("local")

#: seconds between runs of retention
_RETENTION_INTERVAL = 30.0
#: seconds between runs of retention while the disk is full
_FULL_DISK_RETENTION_INTERVAL = 1.0
#: most records in one chunk of `read`
_READ_RECORDS = 10_000


class LocalBroker(Broker):
    """Owns a data directory. The event loop decides, one thread writes, a few threads read."""

    def __init__(self, options: LocalOptions, clock: Clock | None = None) -> None:
        self.traits = options.traits
        self._options = options
        self._clock = clock or Clock()
        self._folder = Folder(Path(options.directory))
        self._reserve = DiskReserve(self._folder.reserve, options.reserve_bytes)
        self._topics: dict[str, list[LaneView]] = {}
        self._sources: list[LocalSource] = []
        self._writer: Writer | None = None
        self._readers: ReaderThreads | None = None
        self._retention_task: asyncio.Task[None] | None = None
        self._disk_is_full = asyncio.Event()
        self.trouble = ""
        self.facts = {"directory": str(self._folder.path), "sqlite": sqlite3.sqlite_version}

    async def open(self) -> None:
        connection, store = await asyncio.to_thread(self._open)
        self._apply(store.catalog.all_lanes())
        self._readers = ReaderThreads(self._folder.database)
        self._writer = Writer(
            store, connection, self._folder, self._reserve, on_change=self._apply, on_trouble=self._apply_trouble
        )
        self._retention_task = asyncio.create_task(self._retention_loop(), name="offramp-local-retention")

    def subscribe(self, spec: SourceSpec) -> LocalSource:
        return LocalSource(self, spec)

    def cursor(self, spec: SourceSpec) -> LocalCursor:
        return LocalCursor(self, spec)

    async def publish(self, topic: str, messages: Sequence[Message]) -> Sequence[Place]:
        if not messages:
            return []
        sizes = [_size(message) for message in messages]
        largest = max((size for size, message in zip(sizes, messages, strict=True) if not message.aside), default=0)
        if largest > self._options.max_record_bytes:
            raise TooLarge(
                f"A record of {largest:,} bytes is larger than `max_record_bytes`, which is "
                f"{self._options.max_record_bytes:,}."
            )
        return await self.write(lambda store: store.appender.append(topic, messages), publishes=True, size=sum(sizes))

    async def ensure_topic(self, topic: str, lanes: int) -> None:
        if topic not in self._topics:
            await self.write(lambda store: store.catalog.ensure(topic, lanes))

    async def add_lanes(self, topic: str, lanes: int) -> None:
        """Gives a topic more lanes; open sources get them at once. Keys move to other lanes. Raises `NotFound`."""
        await self.write(lambda store: store.add_lanes(topic, lanes))

    async def lane_ends(self, topic: str) -> Mapping[Lane, LaneEnd]:
        if topic not in self._topics:
            raise NotFound(f"There is no topic {topic!r}.")
        return {view.lane: LaneEnd(view.start, view.end) for view in self._topics[topic]}

    async def read(self, lane: Lane, run: Run, max_bytes: int) -> AsyncIterator[Chunk]:
        view = self.view(lane)
        position = run.start
        while (position := max(position, view.start)) < (stop := min(run.stop, view.end)):
            query = LaneQuery(view.id, lane, Run(position, stop))
            taken = await self.read_with(read_lane, query, _READ_RECORDS, max_bytes)
            for chunk in taken.chunks:
                yield chunk
            if taken.damage:
                raise damaged(self._folder.database, f"in {lane}, {taken.damage}")
            if taken.position == position:
                # Retention has just removed it, and the reader saw that before the event loop did.
                await asyncio.sleep(0)
            position = taken.position

    async def locate(self, topic: str, target: SeekTarget) -> Mapping[Lane, int]:
        return {lane: await self.resolve(self.view(lane), target) for lane in await self.lane_ends(topic)}

    async def delete_group(self, group: str) -> None:
        """Raises `NotFound`, and `Refused` while a source of the group is open."""
        if any(source.spec.group == group for source in self._sources):
            raise Refused(f"Group {group!r} is being consumed. Stop its subscription first.")
        await self.write(lambda store: store.groups.delete(group))

    async def run_retention(self) -> None:
        """Does now what retention does in the background: removes what is old or too much."""
        while await self.write(lambda store: store.retention.step(self._clock.wall_ms())):
            pass
        while await self.write(lambda store: store.retention.shrink(all_of_it=bool(self.trouble))):
            pass

    async def close(self) -> None:
        keeper, readers, writer = self._retention_task, self._readers, self._writer
        self._retention_task = self._readers = self._writer = None
        if keeper:
            keeper.cancel()
            await asyncio.wait([keeper])
        # Readers first: the last connection to close empties the journal.
        if readers:
            await asyncio.to_thread(readers.close)
        if writer:
            await writer.close()
        self._folder.leave()

    # For sources and cursors.

    def view(self, lane: Lane) -> LaneView:
        """Raises `NotFound`."""
        lanes = self._topics.get(lane.topic, [])
        if not 0 <= lane.number < len(lanes):
            raise NotFound(f"There is no lane {lane}.")
        return lanes[lane.number]

    def views(self, topic: str) -> Iterable[LaneView]:
        return self._topics.get(topic, ())

    async def resolve(self, view: LaneView, target: SeekTarget) -> int:
        """The position of a target in a lane."""
        match target:
            case SeekTo.START:
                return view.start
            case SeekTo.END:
                return view.end
            case AtPosition(position):
                return max(view.start, min(position, view.end))
            case AtTime(timestamp_ms):
                found = await self.read_with(first_at_time, view.id, timestamp_ms)
                return view.end if found is None else found

    def check_unconsumed(self, spec: SourceSpec) -> None:
        """Raises `Refused` if a source of the group consumes one of the topics."""
        for source in self._sources:
            if source.spec.group == spec.group and source.topics & set(spec.topics):
                raise Refused(
                    f"Group {spec.group!r} is consumed by leases in this sidecar: it cannot be read by ranges at the "
                    "same time. Give one of the subscriptions another `group`."
                )

    def enter(self, source: LocalSource) -> None:
        """Registers a source that begins to consume. Raises `Refused` if another of its group has one of its topics."""
        for other in self._sources:
            shared = other.topics & source.topics
            if other.spec.group == source.spec.group and shared:
                raise Refused(
                    f"Group {source.spec.group!r} already consumes {', '.join(sorted(shared))} in this sidecar. Give "
                    "one of the subscriptions another `group`."
                )
        self._sources.append(source)

    def exit(self, source: LocalSource) -> None:
        if source in self._sources:
            self._sources.remove(source)

    async def write(self, run: Callable[[Store], T], *, publishes: bool = False, size: int = 0) -> T:
        if self._writer is None:
            raise Unavailable("The local broker is not open.")
        return await self._writer.submit(run, publishes=publishes, size=size)

    async def read_with(
        self, read: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._readers is None:
            raise Unavailable("The local broker is not open.")
        return await self._readers.run(read, *args, **kwargs)

    def _open(self) -> tuple[sqlite3.Connection, Store]:
        with contextlib.ExitStack() as undo:
            self._folder.take()
            undo.callback(self._folder.leave)
            try:
                connection = open_database(self._folder, self._options.reserve_bytes)
            except OutOfRoom:
                self._reserve.give_up()
                connection = open_database(self._folder, self._options.reserve_bytes)
            undo.callback(connection.close)
            try:
                store = Store(connection, self._options, self._clock)
                self._reserve.hold()
            except sqlite3.Error as error:
                raise translate(error, self._folder.database) from error
            except OSError as error:
                raise self._folder.unusable(error) from error
            undo.pop_all()
        return connection, store

    def _apply(self, changes: Sequence[LaneView]) -> None:
        """Takes over what is on the disk now."""
        changed = set()
        for view in changes:
            topic, number = view.lane
            lanes = self._topics.setdefault(topic, [])
            changed.add(topic)
            if number < len(lanes):
                lanes[number].start, lanes[number].end = view.start, view.end
                continue
            lanes.append(view)
            for source in self._sources:
                if topic in source.topics:
                    source.add(view)
        for source in self._sources:
            if changed & source.topics:
                source.wake()

    def _apply_trouble(self, text: str) -> None:
        if text == self.trouble:
            return
        self.trouble = text
        if text:
            log.error(text)
            self._disk_is_full.set()
        else:
            log.info(f"the disk of {self._folder.path} has space again")
        for source in self._sources:
            source.tell(Trouble("disk", text))

    async def _retention_loop(self) -> None:
        failure = ""
        while True:
            await self._wait_for_retention()
            try:
                await self.run_retention()
                failure = ""
            except BrokerError as error:
                if failure != str(error):
                    failure = str(error)
                    log.warning("retention failed and is retried later", error=failure)
            except Exception as error:
                # Nobody awaits this task: if it ended, the disk would fill up silently.
                if failure != repr(error):
                    failure = repr(error)
                    log.bug("retention failed and is retried later", error)

    async def _wait_for_retention(self) -> None:
        if self.trouble:
            await asyncio.sleep(_FULL_DISK_RETENTION_INTERVAL)
            return
        self._disk_is_full.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETENTION_INTERVAL):
                await self._disk_is_full.wait()


def _size(message: Message) -> int:
    size = len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"")
    return size

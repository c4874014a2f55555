"""Ranges: reading a run of a lane without joining a group, and the positions of a group whose reader does so.

Positions are stored by a non-member, which Kafka accepts while the group has no members. Kafka cannot compare and store
in one step. So the token is compared first, and a commit in flight while another reader attaches may still be stored.
It can make the lag look wrong until the new reader commits; no reader starts from it. Each commit stores the token of
its reader again, so that the newest token is stored in the end.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.base import LaneEnd, SourceSpec
from sidecar.brokers.cursor import Cursor, GroupState
from sidecar.brokers.fencing import Attached, Fence, check_token, decode, newest, next_token
from sidecar.brokers.fencing import encode as encode_fence
from sidecar.brokers.kafka.errors import translate
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.offset_client import OffsetClient, StoredPosition
from sidecar.brokers.kafka.options import consumer_properties
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.brokers.kafka.records import encode
from sidecar.model.errors import BrokerError, NotFound, Unavailable
from sidecar.model.records import Chunk, Lane, Run

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker

#: the library needs one; nothing is ever stored under it
_GROUP = "offramp.ranges"
#: many ranges may be read at the same time, so each holds little: kilobytes ready, and bytes of one response
_LOW_MEMORY: Mapping[str, int] = {"queued.max.messages.kbytes": 4096, "fetch.max.bytes": 2 << 20}
#: records of one read
_MAX_RECORDS = 2_000
#: seconds without records after which the broker counts as unreachable, if there was an error
_READ_TIMEOUT = 15.0
#: the same without an error: the library is silent, too, while it skips gigabytes of aborted transactions
_SILENT_TIMEOUT = 120.0
#: errors of the group, which is not used
_OF_THE_GROUP = frozenset((KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT))
#: how often an attachment is stored again that a late commit has overwritten
_ATTACH_TRIES = 3


class RangeReader:
    """Reads one run with a consumer and a thread of its own.

    On the threads of the event loop, ranges whose leader is away would block others that need one, such as commits.
    """

    def __init__(self, clients: LibraryClients, lane: Lane, run: Run, end: LaneEnd) -> None:
        self._clients = clients
        self._lane = lane
        self._next = max(run.start, end.start)
        self._stop = min(run.stop, end.end)
        self._consumer: Consumer | None = None
        #: seconds without records
        self._silent = 0.0
        self._buffer = PollBuffer(lambda: None)

    async def chunks(self, max_bytes: int) -> AsyncIterator[Chunk]:
        """Ends with the run or with the lane, also if there is no record at the end."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "offramp-kafka-range")
        try:
            while True:
                for chunk in self._buffer.take(_MAX_RECORDS, max_bytes).chunks:
                    yield chunk
                if self._buffer:
                    continue
                if self._next >= self._stop:
                    return
                await loop.run_in_executor(thread, self._read)
        finally:
            closing = loop.run_in_executor(thread, self._close)
            thread.shutdown(wait=False)
            await asyncio.shield(closing)

    def _read(self) -> None:
        """Some more records, or how far there are none. Raises `Unavailable`, `Refused`, `NotFound`."""
        if self._consumer is None:
            conf = {**consumer_properties(self._clients.options, _GROUP), **_LOW_MEMORY}
            self._consumer = self._clients.create(Consumer, conf)
            self._consumer.assign([TopicPartition(self._lane.topic, self._lane.number, self._next)])
        try:
            first = self._consumer.poll(_READ_TIMEOUT)
            if first is None:
                self._check_silence()
                return
            self._silent = 0.0
            records, error_messages = encode([first, *self._consumer.consume(_MAX_RECORDS - 1, 0)])
        except KafkaException as error:
            raise translate(error, f"read {self._lane}") from error
        for each in records:
            new = each.starting_at(self._next)
            if not new.positions:
                continue
            self._next = new.positions[-1] + 1
            count = bisect_left(new.positions, self._stop)
            if count:
                self._buffer.add_records([new._replace(positions=new.positions[:count], frames=new.frames[:count])])
        for message in error_messages:
            error_ = message.error()
            assert error_ is not None
            if error_.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, message.offset() or 0)
            elif error_.code() == KafkaError._AUTO_OFFSET_RESET:
                raise Unavailable(f"Kafka: {self._lane} was truncated or cleaned while it was read at {self._next}")
            elif error_.code() not in _OF_THE_GROUP:
                raise self._translated(error_)

    def _check_silence(self) -> None:
        self._silent += _READ_TIMEOUT
        if error := self._clients.recent_errors.latest():
            raise self._translated(error)
        if self._silent >= _SILENT_TIMEOUT:
            raise Unavailable(f"Kafka: cannot read {self._lane}: no answer")

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _translated(self, error: KafkaError) -> BrokerError:
        return self._clients.translate(error, f"read {self._lane}")


class KafkaCursor(Cursor):
    def __init__(self, broker: "KafkaBroker", spec: SourceSpec) -> None:
        self._broker = broker
        self._spec = spec
        self._offset_client: OffsetClient | None = None
        #: the reader that attached here last
        self._mine: Attached | None = None

    async def open(self) -> None:
        await self._broker.prepare_topics(self._spec)
        if self._offset_client is None:
            self._offset_client = OffsetClient(self._broker.clients, self._spec.group)

    async def lanes(self) -> Mapping[Lane, LaneEnd]:
        return await self._broker.admin.ends(await self._lanes())

    async def fetch_state(self) -> GroupState:
        stored = await self._client.stored(await self._lanes())
        fences = {lane: decode(each.metadata) for lane, each in stored.items()}
        # A position without a fence was set by a tool.
        pinned = {lane: stored[lane].position for lane, fence in fences.items() if fence is None or fence.pinned}
        return GroupState(pinned, newest(fences.values()))

    async def attach(self, reader: str, now_ms: int) -> Attached:
        state = await self.fetch_state()
        before = state.attached.token if state.attached else 0
        attached = self._mine = Attached(next_token(before, now_ms), reader, now_ms)
        for _ in range(_ATTACH_TRIES):
            pinned = bool(state.positions)
            await self._store(state.positions if pinned else await self._first_start(), Fence(attached, pinned))
            state = await self.fetch_state()
            if state.attached is not None and state.attached.token >= attached.token:
                break
        return attached

    async def pin(self, token: int, positions: Mapping[Lane, int]) -> None:
        state = await self._checked_state(token)
        new = {lane: position for lane, position in positions.items() if lane not in state.positions}
        await self._store(new, Fence(self._reader(token, state), pinned=True))

    async def commit(self, token: int, positions: Mapping[Lane, int]) -> None:
        state = await self._checked_state(token)
        # Positions that do not move are stored, too: in a group without members, Kafka forgets a position that was not
        # stored for a week (offsets.retention.minutes).
        moved = {lane: max(position, state.positions.get(lane, 0)) for lane, position in positions.items()}
        await self._store(moved, Fence(self._reader(token, state), pinned=True))

    async def move(self, positions: Mapping[Lane, int]) -> None:
        attached = (await self.fetch_state()).attached
        await self._store(positions, Fence(attached, pinned=True) if attached else None)

    async def close(self) -> None:
        client, self._offset_client = self._offset_client, None
        if client is not None:
            await client.close()

    async def _checked_state(self, token: int) -> GroupState:
        state = await self.fetch_state()
        check_token(token, state.attached, exact=False)
        return state

    def _reader(self, token: int, state: GroupState) -> Attached:
        """The reader that has a token, which was checked. If it is newer than the stored one, a tool that set positions
        or a late commit has overwritten it; it is stored again, without the name if that is not known."""
        known = (state.attached, self._mine)
        return next((one for one in known if one is not None and one.token == token), Attached(token, "", 0))

    async def _store(self, positions: Mapping[Lane, int], fence: Fence | None) -> None:
        text = encode_fence(fence) if fence else ""
        await self._client.store({lane: StoredPosition(position, text) for lane, position in positions.items()})

    async def _first_start(self) -> dict[Lane, int]:
        """Where a group that has no position yet stores its token."""
        first = min(await self._lanes())
        return {first: (await self._broker.admin.ends([first]))[first].start}

    async def _lanes(self) -> list[Lane]:
        admin = self._broker.admin
        topics = await admin.topics(await admin.matching(self._spec.topics))
        lanes = [lane for topic in topics.values() for lane in topic.lanes]
        if not lanes:
            raise NotFound(f"There is no topic {', '.join(map(repr, self._spec.topics))}. Create it first.")
        return lanes

    @property
    def _client(self) -> OffsetClient:
        if self._offset_client is None:
            raise Unavailable("The cursor is not open.")
        return self._offset_client

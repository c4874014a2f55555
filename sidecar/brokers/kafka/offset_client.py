"""Reads and stores the committed positions of a group without being a member of it."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, ParamSpec, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.kafka.errors import kafka_error, translate
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import consumer_properties
from sidecar.model.errors import Refused
from sidecar.model.records import Lane

P = ParamSpec("P")
T = TypeVar("T")

#: seconds to wait for one response
_REQUEST_TIMEOUT = 10.0
#: seconds between polls for events of the library, and the most events that one poll takes
_POLL_INTERVAL, _MAX_EVENTS = 1.0, 100
#: the broker accepts positions from a non-member only while the group has no members
_HAS_MEMBERS = frozenset((KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH))


class StoredPosition(NamedTuple):
    """What Kafka stores for a lane of a group."""

    position: int
    metadata: str


class OffsetClient:
    """A consumer that never joins.

    The consumer of the poll thread cannot be used: the thread is polling, and the library lets one thread in at a time.
    (The library's admin client has the same calls, but crashed while the broker was starting.)
    """

    def __init__(self, clients: LibraryClients, group: str) -> None:
        self._group = group
        self._clients = clients
        self._consumer = clients.create(Consumer, consumer_properties(clients.options, group))
        self._lock = asyncio.Lock()
        self._polling = asyncio.get_running_loop().create_task(self._poll_loop())

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, StoredPosition]:
        """The positions of the group in these lanes; leaves out lanes without one. Raises `Unavailable`, `Refused`."""
        if not lanes:
            return {}
        doing = f"read the positions of group {self._group}"
        found: dict[Lane, StoredPosition] = {}
        for partition in await self._run(self._committed, [TopicPartition(*lane) for lane in lanes], doing):
            if partition.error is not None:
                raise translate(partition.error, doing)
            if partition.offset >= 0:
                lane = Lane(partition.topic, partition.partition)
                found[lane] = StoredPosition(partition.offset, partition.metadata or "")
        return found

    async def pin(self, positions: Mapping[Lane, int]) -> None:
        """Store positions, unless the group has members already: then they do it."""
        if positions:
            await self._run(self._pin, positions)

    async def store(self, entries: Mapping[Lane, StoredPosition]) -> None:
        """Store positions with their metadata. Raises `Refused` while the group has members."""
        if entries:
            await self._run(self._store, entries)

    def poll(self) -> None:
        """Take events of the library. While Kafka is away there are many, and they would pile up in the library."""
        if not self._lock.locked():
            for _ in range(_MAX_EVENTS):
                if self._consumer.poll(0) is None:
                    break

    async def close(self) -> None:
        self._polling.cancel()
        await self._run(self._consumer.close)

    async def _poll_loop(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL)
            self.poll()

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in a thread, one call at a time. Shielded: a call cannot be stopped when its caller is cancelled, and
        no other may begin before it ends."""

        async def locked() -> T:
            async with self._lock:
                return await asyncio.to_thread(call, *args, **kwargs)

        work = asyncio.ensure_future(locked())
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(work)

    def _committed(self, partitions: list[TopicPartition], doing: str) -> list[TopicPartition]:
        self._consumer.poll(0)
        try:
            return self._consumer.committed(partitions, timeout=_REQUEST_TIMEOUT)
        except KafkaException as error:
            raise self._translated(error, doing) from error

    def _pin(self, positions: Mapping[Lane, int]) -> None:
        offsets = [TopicPartition(*lane, position) for lane, position in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if kafka_error(error).code() not in _HAS_MEMBERS:
                raise self._translated(error, f"store the start of group {self._group}") from error

    def _store(self, entries: Mapping[Lane, StoredPosition]) -> None:
        offsets = [TopicPartition(*lane, position, metadata) for lane, (position, metadata) in entries.items()]
        doing = f"store positions of group {self._group}"
        try:
            stored = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if kafka_error(error).code() in _HAS_MEMBERS:
                raise self._has_members() from error
            raise self._translated(error, doing) from error
        for partition in stored or ():
            if partition.error is not None:
                has_members = partition.error.code() in _HAS_MEMBERS
                raise self._has_members() if has_members else translate(partition.error, doing)

    def _has_members(self) -> Refused:
        return Refused(
            f"Kafka: group {self._group} has members, which consume it by leases: it cannot be read by ranges at the "
            "same time. Stop them, or set another `group`"
        )

    def _translated(self, error: KafkaException, doing: str) -> Exception:
        # Events may tell why.
        self._consumer.poll(0)
        return self._clients.translate(error, doing)

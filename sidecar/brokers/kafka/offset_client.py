"""Asking for and pinning the positions of a group without being a member of it."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.kafka.errors import kafka_error, translate
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.brokers.kafka.properties import reading
from sidecar.model.errors import Refused
from sidecar.model.records import Lane

P = ParamSpec("P")
T = TypeVar("T")

#: seconds for one answer
_PATIENCE = 10.0
#: seconds between turns in which the library tells what it has to tell, and how much one takes in at the most
_BETWEEN_TURNS, _IN_A_TURN = 1.0, 100
#: the broker takes positions of non-members only while a group has no members
_HAS_MEMBERS = frozenset((KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH))


class Stored(NamedTuple):
    """What Kafka has for a lane of a group."""

    position: int
    metadata: str


class Clerk:
    """A consumer that never joins.

    The member's own consumer cannot be asked meanwhile: its thread is polling, and the library lets one thread in at a
    time. (The library's admin client can ask, too, but crashed when the broker was just starting.)
    """

    def __init__(self, options: KafkaOptions, group: str, reasons: Reasons, chatter: Chatter) -> None:
        self._group = group
        self._reasons = reasons
        conf: dict[str, Any] = {**reading(options, group), "error_cb": reasons.heard}
        try:
            self._consumer = Consumer(conf, logger=chatter.logger)
        except KafkaException as error:
            raise translate(error, "use the settings") from error
        self._turn = asyncio.Lock()
        self._serving = asyncio.get_running_loop().create_task(self._serve_always())

    async def stored(self, lanes: Collection[Lane]) -> dict[Lane, Stored]:
        """Where the group is in these lanes, where it is anywhere. Raises `Unavailable`, `Refused`."""
        if not lanes:
            return {}
        asked = [TopicPartition(lane.topic, lane.number) for lane in lanes]
        answer = await self._run(self._stored, asked)
        found: dict[Lane, Stored] = {}
        for partition in answer:
            if partition.error is not None:
                raise translate(partition.error, f"read the positions of group {self._group}")
            if partition.offset >= 0:
                found[Lane(partition.topic, partition.partition)] = Stored(partition.offset, partition.metadata or "")
        return found

    async def pin(self, positions: Mapping[Lane, int]) -> None:
        """Store positions, unless the group has members already: then it is theirs to do."""
        if positions:
            await self._run(self._pin, positions)

    async def store(self, entries: Mapping[Lane, Stored]) -> None:
        """Store positions with their metadata. Raises `Refused` while the group has members."""
        if entries:
            await self._run(self._store, entries)

    def serve(self) -> None:
        """Hear what the library has to tell: while Kafka is gone that is much, and what nobody hears piles up in it."""
        if not self._turn.locked():
            for _ in range(_IN_A_TURN):
                if self._consumer.poll(0) is None:
                    break

    async def close(self) -> None:
        self._serving.cancel()
        await self._run(self._consumer.close)

    async def _serve_always(self) -> None:
        while True:
            await asyncio.sleep(_BETWEEN_TURNS)
            self.serve()

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread, one call at a time. Shielded, since one that nobody waits for any more cannot be stopped, and no
        other may come in before it has ended."""

        async def in_turn() -> T:
            async with self._turn:
                return await asyncio.to_thread(call, *args, **kwargs)

        work = asyncio.ensure_future(in_turn())
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(work)

    def _stored(self, asked: list[TopicPartition]) -> list[TopicPartition]:
        self._consumer.poll(0)
        try:
            return self._consumer.committed(asked, timeout=_PATIENCE)
        except KafkaException as error:
            raise self._translated(error, f"read the positions of group {self._group}") from error

    def _pin(self, positions: Mapping[Lane, int]) -> None:
        offsets = [TopicPartition(lane.topic, lane.number, position) for lane, position in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if kafka_error(error).code() not in _HAS_MEMBERS:
                raise self._translated(error, f"store the start of group {self._group}") from error

    def _store(self, entries: Mapping[Lane, Stored]) -> None:
        offsets = [TopicPartition(*lane, position, metadata) for lane, (position, metadata) in entries.items()]
        doing = f"store positions of group {self._group}"
        try:
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if kafka_error(error).code() in _HAS_MEMBERS:
                raise self._taken() from error
            raise self._translated(error, doing) from error
        for partition in answer or ():
            if partition.error is not None:
                taken = partition.error.code() in _HAS_MEMBERS
                raise self._taken() if taken else translate(partition.error, doing)

    def _taken(self) -> Refused:
        return Refused(
            f"Kafka: group {self._group} has members, which consume it by leases: it cannot be read by ranges at the "
            "same time. Stop them, or set another `group`"
        )

    def _translated(self, error: KafkaException, doing: str) -> Exception:
        self._consumer.poll(0)
        return translate(self._reasons.behind(kafka_error(error)), doing)

"""Reads a run of a lane without joining a group."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.errors import translate
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import consumer_properties
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.brokers.kafka.records import encode
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Chunk, Lane, Run

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

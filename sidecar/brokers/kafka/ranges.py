"""Reading a run of a lane without joining a group."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.base import LaneEnd
from sidecar.brokers.kafka.errors import translate
from sidecar.brokers.kafka.library_logs import Chatter, Reasons
from sidecar.brokers.kafka.options import KafkaOptions
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.brokers.kafka.properties import reading
from sidecar.brokers.kafka.records import encode
from sidecar.model.errors import BrokerError, Unavailable
from sidecar.model.records import Chunk, Lane, Run

#: the library asks for one; nothing is ever stored under it
_GROUP = "offramp.ranges"
#: many ranges may be read at a time, so that each holds little: kilobytes ready, and bytes of one answer
_LITTLE: Mapping[str, int] = {"queued.max.messages.kbytes": 4096, "fetch.max.bytes": 2 << 20}
#: records asked of the library at a time
_AT_A_TIME = 2_000
#: seconds without anything after which the broker counts as unreachable, if there was an error
_PATIENCE = 15.0
#: the same without one: the library is silent while it passes over gigabytes of aborted transactions, too
_LONG_PATIENCE = 120.0
#: errors of the group, which is not used
_OF_THE_GROUP = frozenset((KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT))


class RangeReader:
    """One run, read by one consumer of its own, in a thread of its own.

    On the threads of the event loop, ranges of a leader that is away would hold up whoever else needs one: commits.
    """

    def __init__(
        self, options: KafkaOptions, reasons: Reasons, chatter: Chatter, lane: Lane, run: Run, end: LaneEnd
    ) -> None:
        self._reasons = reasons
        self._lane = lane
        self._next = max(run.start, end.start)
        self._stop = min(run.stop, end.end)
        conf: dict[str, Any] = {**reading(options, _GROUP), **_LITTLE, "error_cb": reasons.heard}
        self._make: Callable[[], Consumer] = lambda: Consumer(conf, logger=chatter.logger)
        self._consumer: Consumer | None = None
        #: seconds without anything
        self._silent = 0.0
        self._shelf = Shelf(lambda: None)

    async def chunks(self, max_bytes: int) -> AsyncIterator[Chunk]:
        """Ends with the run or with the lane, also where there is no record at its end."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, "offramp-kafka-range")
        try:
            while True:
                for chunk in self._shelf.take(_AT_A_TIME, max_bytes).chunks:
                    yield chunk
                if self._shelf:
                    continue
                if self._next >= self._stop:
                    return
                await loop.run_in_executor(thread, self._read)
        finally:
            closing = loop.run_in_executor(thread, self._close)
            thread.shutdown(wait=False)
            await asyncio.shield(closing)

    def _read(self) -> None:
        """Some more records; or where there are none. Raises `Unavailable`, `Refused`, `NotFound`."""
        if self._consumer is None:
            self._consumer = self._make()
            self._consumer.assign([TopicPartition(self._lane.topic, self._lane.number, self._next)])
        try:
            first = self._consumer.poll(_PATIENCE)
            if first is None:
                self._check_silence()
                return
            self._silent = 0.0
            taken, tidings = encode([first, *self._consumer.consume(_AT_A_TIME - 1, 0)])
        except KafkaException as error:
            raise translate(error, f"read {self._lane}") from error
        for each in taken:
            new = each.starting_at(self._next)
            if not new.positions:
                continue
            self._next = new.positions[-1] + 1
            count = bisect_left(new.positions, self._stop)
            if count:
                self._shelf.put([new._replace(positions=new.positions[:count], frames=new.frames[:count])])
        for message in tidings:
            error_ = message.error()
            assert error_ is not None
            if error_.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, message.offset() or 0)
            elif error_.code() == KafkaError._AUTO_OFFSET_RESET:
                raise Unavailable(f"Kafka: {self._lane} was cut or cleaned while it was read at {self._next}")
            elif error_.code() not in _OF_THE_GROUP:
                raise self._translated(error_)

    def _check_silence(self) -> None:
        self._silent += _PATIENCE
        if reason := self._reasons.latest():
            raise self._translated(reason)
        if self._silent >= _LONG_PATIENCE:
            raise Unavailable(f"Kafka: cannot read {self._lane}: no answer")

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _translated(self, error: KafkaError) -> BrokerError:
        return translate(self._reasons.behind(error), f"read {self._lane}")

"""What Kafka has, read by a plain client. Shares no code with the sidecar, which is checked by it."""

import base64
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.e2e.load import origins
from tests.e2e.load.audit import BrokerSnapshot, Stored
from tests.e2e.load.journal import Spot
from tests.servers.kafka import QUIET, KafkaServer

_READ_TIMEOUT = 20.0
#: what Kafka says for a group that has not committed
_NOTHING = -1001


@dataclass
class KafkaSnapshot(BrokerSnapshot):
    #: next position of each lane that the group is to read, and where each lane ends
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.positions == self.ends


def progress(kafka: KafkaServer, group: str, topic: str, lanes: int) -> KafkaSnapshot:
    """The commits of the group alone."""
    snapshot = KafkaSnapshot()
    for lane, (offset, metadata) in kafka.committed(group, topic, range(lanes)).items():
        snapshot.positions[lane] = 0 if offset == _NOTHING else offset
        runs = [(0, snapshot.positions[lane]), *runs_beyond(offset, metadata)]
        snapshot.committed.update(Spot(lane, position) for start, stop in runs for position in range(start, stop))
    consumer = _consumer(kafka)
    snapshot.ends = {lane: consumer.get_watermark_offsets(TopicPartition(topic, lane))[1] for lane in range(lanes)}
    consumer.close()
    return snapshot


def take_snapshot(kafka: KafkaServer, group: str, topic: str, lanes: int) -> KafkaSnapshot:
    """Records and commits. The commits are read first: then the acks for them are in the journals."""
    snapshot = progress(kafka, group, topic, lanes)
    for message in read(kafka, topic):
        spot = Spot(message.partition() or 0, message.offset() or 0)
        snapshot.records[spot] = Stored(message.key(), message.value() or b"")
    # There is nothing to settle at a position that has no record.
    snapshot.committed &= snapshot.records.keys()
    for message in read(kafka, f"{group}.offramp.dead"):
        told = headers_of(message)
        snapshot.dead[origins.of_letter(told)] = told["offramp-reason"]
    for message in read(kafka, f"{group}.offramp.retry"):
        snapshot.parked.add(origins.of_parked(headers_of(message)))
    return snapshot


def read(kafka: KafkaServer, topic: str, since: Mapping[int, int] | None = None) -> Iterator[Message]:
    """Every record of a topic, if there is one, without a group. `since`: not those before these positions."""
    starts = since or {}
    consumer = _consumer(kafka)
    try:
        found = consumer.list_topics(topic, _READ_TIMEOUT).topics[topic]
        if found.error is not None:
            return
        lanes = [TopicPartition(topic, lane) for lane in found.partitions]
        left = {lane.partition for lane in lanes if _size(consumer, lane)}
        consumer.assign([TopicPartition(topic, lane, starts.get(lane, OFFSET_BEGINNING)) for lane in left])
        while left:
            first = consumer.poll(_READ_TIMEOUT)
            assert first is not None, f"nothing comes from {topic}"
            # With a timeout, this would wait for as many.
            for message in (first, *consumer.consume(1000, 0)):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def runs_beyond(offset: int, metadata: str | None) -> list[tuple[int, int]]:
    """The runs beyond its offset that a commit has as settled, as docs/brokers/kafka.md describes it."""
    if not metadata:
        return []
    mark, version, text = metadata.split(":")
    assert (mark, version) in (("offramp", "1"), ("offramp", "2")), metadata
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    body = raw[:-4]
    covered = body if version == "1" else b"offramp:2:" + body
    assert int.from_bytes(raw[-4:], "big") == zlib.crc32(covered), "the checksum is wrong"
    numbers = _Numbers(body)
    for _ in ("cluster", "topic"):
        numbers.skip(numbers.next())
    assert numbers.next() == offset, "it belongs to another offset"
    if version == "2":
        numbers.next()  # how far records may have been delivered
    runs, at = [], offset
    while numbers.left:
        start = at + numbers.next()
        at = start + numbers.next()
        runs.append((start, at))
    return runs


class _Numbers:
    """Seven bits a byte, the lowest first; the eighth says that there is more."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @property
    def left(self) -> int:
        return len(self._raw)

    def skip(self, count: int) -> None:
        self._raw = self._raw[count:]

    def next(self) -> int:
        length = next(place for place, byte in enumerate(self._raw, 1) if byte < 128)
        bytes_ = self._raw[:length]
        self.skip(length)
        return sum((byte & 127) << (7 * place) for place, byte in enumerate(bytes_))


def _size(consumer: Consumer, lane: TopicPartition) -> int:
    low, high = consumer.get_watermark_offsets(lane, _READ_TIMEOUT)
    return high - low


def _consumer(kafka: KafkaServer) -> Consumer:
    return Consumer(
        {
            **kafka.settings(),
            "group.id": "offramp-tests-snapshot",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        },
        logger=QUIET,
    )


def headers_of(message: Message) -> dict[str, str]:
    return {header[0]: header[1].decode() for header in message.headers() or [] if isinstance(header[1], bytes)}

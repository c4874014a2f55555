"""Records that are parked or dead-lettered come back unchanged."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.failures import dead_letter_topic, retry_topic
from sidecar.core.state.record_slices import DeliveryHistory, RecordSlice
from sidecar.model.records import Chunk, Header, Lane, Message, Record
from sidecar.model.wire import decode_frame, encode_frame
from tests.kit import lane_state

texts = st.text(st.characters(codec="utf-8"), max_size=20)
#: some with the names of those that Offramp writes
names = texts | st.sampled_from([retry_topic.HEADER, *dead_letter_topic.HEADERS])
headers = st.lists(st.builds(Header, names, st.none() | st.binary(max_size=30)), max_size=15).map(tuple)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=30),
    value=st.none() | st.binary(max_size=200),
    headers=headers,
    lane=st.integers(0, (1 << 32) - 1),
    position=st.integers(0, (1 << 63) - 1),
    timestamp_ms=st.integers(0, 1 << 50),
    ref=st.binary(max_size=12),
)
topics = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=20)
histories = st.builds(
    DeliveryHistory,
    failures=st.integers(0, 100),
    counted_failures=st.integers(0, 100),
    worker_crashes=st.integers(0, 5),
    possibly_processed=st.booleans(),
    first_failed=st.none() | st.floats(0.0, 1_000.0),
    max_batch_size=st.integers(0, 500),
)
wall_clock = st.integers(0, 1 << 45)


def encode(record: Record) -> bytes:
    return encode_frame(
        record.key, record.value, record.headers, record.lane, record.position, record.timestamp_ms, record.ref
    )


TOPIC_ID = "the id of a topic"


def slice_with(record: Record, topic: str, history: DeliveryHistory) -> RecordSlice:
    lane = Lane(topic, record.lane)
    chunk = Chunk(lane, [record.position], [encode(record)])
    lane_ = lane_state(record.lane, topic=topic)
    lane_.topic_id = TOPIC_ID
    return RecordSlice(lane_, chunk, 0, 1, record.position, history)


def as_stored(message: Message, topic: str, lane: int, position: int) -> Chunk:
    """The message as the broker returns it."""
    frame = encode_frame(message.key, message.value, message.headers, lane, position, 1)
    return Chunk(Lane(topic, lane), [position], [frame])


@given(records, topics, histories, st.floats(0.0, 1e6), wall_clock, st.integers(1, 8), st.floats(0.0, 1_000.0))
def test_a_parked_record_comes_back_as_it_was(
    record: Record, topic: str, history: DeliveryHistory, wait: float, wall_ms: int, lanes: int, later: float
) -> None:
    now = 1_000.0
    message = retry_topic.park(
        slice_with(record, topic, history), now=now, due=now + wait, wall_ms=wall_ms, lanes=lanes
    )
    assert message.lane == retry_topic.lane_for(wait, lanes)
    assert message.lane in range(lanes)

    stored = as_stored(message, "orders.offramp.retry", message.lane, 7)
    back = retry_topic.unpark(stored, 0, now=now + later, wall_ms=wall_ms + int(later * 1000), possibly_processed=False)

    assert decode_frame(back.chunk.frames[0]) == record
    assert back.chunk.shown == Lane(topic, record.lane)
    assert back.chunk.topic_id == TOPIC_ID
    assert (back.chunk.lane, [*back.chunk.positions]) == (stored.lane, [7])
    assert abs(back.not_before_ms - (wall_ms + wait * 1000)) <= 1
    # It may have come from its own lane meanwhile, with an unknown outcome.
    assert back.history._replace(first_failed=None) == history._replace(first_failed=None, possibly_processed=True)
    if history.first_failed is None:
        assert back.history.first_failed is None
    else:
        # Parking does not change when it first failed.
        assert back.history.first_failed is not None
        assert abs(back.history.first_failed - history.first_failed) < 0.01


@given(records, topics, histories, wall_clock)
def test_parking_a_record_again_and_again_adds_nothing(
    record: Record, topic: str, history: DeliveryHistory, wall_ms: int
) -> None:
    slice_ = slice_with(record, topic, history)
    for _ in range(3):
        message = retry_topic.park(slice_, now=0.0, due=60.0, wall_ms=wall_ms, lanes=1)
        assert len(message.headers) == len(record.headers) + 1
        back = retry_topic.unpark(
            as_stored(message, "retry", 0, 3), 0, now=0.0, wall_ms=wall_ms, possibly_processed=True
        )
        assert back.history.possibly_processed
        slice_ = RecordSlice(lane_state(topic="retry", parked=True), back.chunk, 0, 1, 3, back.history)
        assert slice_.topic == (topic, TOPIC_ID)
    assert decode_frame(slice_.chunk.frames[0]) == record


@given(records, topics, histories, texts, texts, wall_clock)
def test_a_dead_letter_tells_all_and_can_be_sent_back(
    record: Record, topic: str, history: DeliveryHistory, reason: str, worker: str, wall_ms: int
) -> None:
    slice_ = slice_with(record, topic, history)
    message = dead_letter_topic.write(slice_, group="orders", reason=reason, worker=worker, wall_ms=wall_ms)
    assert (
        tuple(header.name for header in message.headers[-len(dead_letter_topic.HEADERS) :]) == dead_letter_topic.HEADERS
    )
    assert message.headers[: -len(dead_letter_topic.HEADERS)] == record.headers

    letter = dead_letter_topic.read(decode_frame(as_stored(message, "orders.offramp.dead", 0, 9).frames[0]))
    assert letter is not None
    assert letter.id == f"{topic}/{record.lane}/{record.position}@{TOPIC_ID}"
    assert (letter.topic, letter.group, letter.reason, letter.worker) == (topic, "orders", reason, worker)
    assert (letter.attempts, letter.dead_lettered_ms) == (max(1, history.failures), wall_ms)
    assert letter.record == record

    again = retry_topic.redriven(letter.record, letter.topic, letter.topic_id, wall_ms=wall_ms)
    back = retry_topic.unpark(as_stored(again, "retry", 0, 1), 0, now=0.0, wall_ms=wall_ms, possibly_processed=False)
    assert decode_frame(back.chunk.frames[0]) == record
    assert back.chunk.shown == Lane(topic, record.lane)
    assert back.chunk.topic_id == TOPIC_ID
    assert back.history == DeliveryHistory(possibly_processed=True)
    assert back.not_before_ms <= wall_ms


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
SAID = {
    "v": 1,
    "topic": "orders",
    "lane": 0,
    "position": 1,
    "timestamp_ms": 2,
    "not_before_ms": 3,
    "wait_ms": 1,
    "failures": 0,
    "strikes": 0,
    "deaths": 0,
    "doubtful": False,
    "failed_ms": None,
    "company": 0,
    "ref": "00",
}
nonsense = st.one_of(
    st.none(),
    st.binary(max_size=40),
    json_values.map(lambda value: json.dumps(value).encode()),
    # One field of the header is wrong or missing.
    st.builds(lambda name, value: json.dumps(SAID | {name: value}).encode(), st.sampled_from([*SAID]), json_values),
    st.sampled_from([*SAID]).map(lambda name: json.dumps({k: v for k, v in SAID.items() if k != name}).encode()),
    st.just(b"[" * 5_000),
)


@given(records, nonsense, st.booleans())
def test_nonsense_in_the_retry_topic_is_delivered_and_not_tripped_over(
    record: Record, value: bytes | None, possibly_processed: bool
) -> None:
    """Anyone may write to the topic. Records that Offramp did not write are delivered at once, unchanged."""
    message = Message(record.key, record.value, (*record.headers, Header(retry_topic.HEADER, value)))
    stored = as_stored(message, "retry", 0, 5)
    back = retry_topic.unpark(stored, 0, now=10.0, wall_ms=0, possibly_processed=possibly_processed)
    delivered = decode_frame(back.chunk.frames[0])
    assert (delivered.key, delivered.value) == (record.key, record.value)
    assert (back.chunk.lane, [*back.chunk.positions]) == (stored.lane, [5])
    if delivered.headers != record.headers:
        assert back.chunk.frames == stored.frames
        assert back.chunk.origin is None
        assert (back.history, back.not_before_ms) == (DeliveryHistory(possibly_processed=possibly_processed), 0)


values = st.one_of(st.none(), st.binary(max_size=8), st.integers().map(lambda number: str(number).encode()))


@given(
    st.lists(values, min_size=len(dead_letter_topic.HEADERS), max_size=len(dead_letter_topic.HEADERS)), st.booleans()
)
def test_nonsense_in_the_dead_letter_topic_is_no_dead_letter_or_one_that_can_be_sent_back(
    values: list[bytes | None], short: bool
) -> None:
    headers = [*map(Header, dead_letter_topic.HEADERS, values)]
    letter = dead_letter_topic.read(Record(b"k", b"v", tuple(headers[short:]), 0, 0))
    if letter is not None:
        assert not short
        assert retry_topic.redriven(letter.record, letter.topic, letter.topic_id, wall_ms=0).key == b"k"


@given(st.floats(0.0, 1e7), st.floats(0.0, 1e7), st.integers(1, 12))
def test_longer_waits_never_go_to_an_earlier_lane(one: float, other: float, lanes: int) -> None:
    short, long = sorted((one, other))
    assert 0 <= retry_topic.lane_for(short, lanes) <= retry_topic.lane_for(long, lanes) < lanes

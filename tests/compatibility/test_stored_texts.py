"""What the older release wrote beside records and positions, on brokers of every kind and in Spark's checkpoints."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sidecar.brokers import fencing
from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka import commit_metadata
from sidecar.brokers.pulsar import positions
from sidecar.brokers.pulsar.broker import PulsarBroker
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.core.failures import dead_letter_topic, retry_topic
from sidecar.core.state.record_slices import DeliveryHistory
from sidecar.model.records import Chunk, Commit, Header, Lane, Record, Run
from sidecar.model.wire import decode_frame, encode_frame
from spark_bridge import progress
from spark_bridge.positions import Lane as SparkLane
from spark_bridge.positions import from_offset, to_offset
from tests.compatibility import fixture, record_of

PARKED, DEAD, KAFKA, PULSAR, SPARK = (
    fixture(f"{name}.json") for name in ("retry_topic", "dead_letter_topic", "kafka", "pulsar", "spark")
)
#: record 41 of lane 3 of `orders`, before anything happened to it
HEADERS = (Header("trace", b"\x00\xff"), Header("nothing", None))
LATER = 2 * 3600.0


def original(ref: bytes = b"") -> Record:
    return Record(b"customer-2", b"order 41", HEADERS, 3, 41, PARKED["wall_ms"] - 60_000, ref)


def frame_of(record: Record) -> bytes:
    return encode_frame(
        record.key, record.value, record.headers, record.lane, record.position, record.timestamp_ms, record.ref
    )


# Parked records: the header is read two hours later by a sidecar whose clock shows 50.


@pytest.mark.parametrize(
    ("name", "ref", "history", "due_after"),
    [
        ("never failed", b"", DeliveryHistory(possibly_processed=True), 60.0),
        (
            "failed",
            b"\x08\x01",
            DeliveryHistory(
                failures=4,
                counted_failures=3,
                worker_crashes=2,
                possibly_processed=True,
                first_failed=50.0 - LATER - 30.0,
                max_batch_size=8,
            ),
            3600.0,
        ),
        ("redriven", b"", DeliveryHistory(possibly_processed=True), 0.0),
    ],
)
def test_a_parked_record_comes_back_with_its_history(
    name: str, ref: bytes, history: DeliveryHistory, due_after: float
) -> None:
    lane = Lane("shop.offramp.retry", 0)
    chunk = Chunk(lane, [7], [frame_of(record_of(PARKED[name], lane=0, position=7))])
    wall_ms = PARKED["wall_ms"] + int(LATER * 1000)
    unparked = retry_topic.unpark(chunk, 0, now=50.0, wall_ms=wall_ms, possibly_processed=False)
    assert unparked.history == history
    assert unparked.not_before_ms == PARKED["wall_ms"] + due_after * 1000
    assert (unparked.chunk.lane, unparked.chunk.shown, list(unparked.chunk.positions)) == (lane, Lane("orders", 3), [7])
    assert decode_frame(unparked.chunk.frames[0]) == original(ref)


def test_a_dead_letter_says_from_where_why_how_often_by_whom_and_when() -> None:
    assert dead_letter_topic.read(record_of(DEAD["failed"], lane=0)) == dead_letter_topic.DeadLetterEntry(
        id="orders/3/41",
        topic="orders",
        record=original(b"\x08\x01"),
        group="shop",
        reason="no such customer: 17 €",
        attempts=5,
        worker="php-7",
        dead_lettered_ms=DEAD["wall_ms"],
    )


# Kafka


@pytest.mark.parametrize("name", list(KAFKA["commits"]))
def test_acks_beyond_an_offset_are_read(name: str) -> None:
    stored, stamp = KAFKA["commits"][name], commit_metadata.Stamp(KAFKA["cluster"], KAFKA["topic_id"])
    commit = commit_metadata.decode(stored["text"], stamp, KAFKA["position"], 1 << 40)
    assert commit.reach is None, "nothing says how far that release had delivered"
    runs = commit.beyond
    assert len(runs) == stored["runs"]
    assert list(runs[:3]) == [Run(*run) for run in stored["first"]]
    assert commit_metadata.topic_of(stored["text"], KAFKA["cluster"], KAFKA["position"]) == KAFKA["topic_id"]


def test_acks_of_a_topic_that_was_deleted_since_do_not_count() -> None:
    text = KAFKA["commits"]["some beyond"]["text"]
    other = commit_metadata.Stamp(KAFKA["cluster"], "another topic")
    assert commit_metadata.decode(text, other, KAFKA["position"], 1 << 40) == Commit(KAFKA["position"])


@pytest.mark.parametrize("stored", KAFKA["fences"])
def test_the_token_of_a_reader_is_read_and_is_older_than_the_next(stored: dict[str, Any]) -> None:
    attached = fencing.Attached(stored["token"], stored["reader"], stored["since_ms"])
    assert fencing.decode(stored["text"]) == fencing.Fence(attached, stored["pinned"])
    assert fencing.next_token(stored["token"], stored["since_ms"]) > stored["token"]


# Pulsar


@pytest.mark.parametrize("stored", PULSAR["positions"])
def test_a_position_is_the_same_message_of_pulsar(stored: dict[str, Any]) -> None:
    assert positions.unpack(stored["position"]) == positions.Id(*stored["id"])
    assert positions.pack(*stored["id"]) == stored["position"]


def test_a_group_of_pulsar_that_is_read_by_ranges_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, name = Lane("clicks", 0), "persistent://public/default/clicks-partition-0"

    async def lanes(_: object) -> dict[Lane, str]:
        return {lane: name}

    monkeypatch.setattr("sidecar.brokers.pulsar.topics.LaneDiscovery.lanes", lanes)
    with admin_api() as url:
        broker = PulsarBroker(PulsarOptions(url="pulsar://127.0.0.1:1", admin_url=url))
        state = asyncio.run(broker.cursor(SourceSpec("spark", ("clicks",))).fetch_state())
        asyncio.run(broker.close())
    fence = PULSAR["fence"]
    assert state.positions == {lane: int(PULSAR["properties"]["offramp-position"])}
    assert state.attached == fencing.Attached(fence["token"], fence["reader"], fence["since_ms"])


@contextmanager
def admin_api() -> Iterator[str]:
    """What Pulsar says of a subscription `spark` with the stored properties, whose cursor is before entry 3 of 7."""
    pages = {
        "stats": {
            "subscriptions": {
                "spark": {"msgBacklog": 10, "consumers": [], "subscriptionProperties": PULSAR["properties"]}
            }
        },
        "internalStats": {
            "lastConfirmedEntry": "7:9",
            "ledgers": [{"ledgerId": 7, "entries": 10}],
            "cursors": {"spark": {"markDeletePosition": "7:2"}},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(pages[self.path.partition("?")[0].rpartition("/")[2]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The test says what it needs to."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# Spark


def test_a_checkpoint_is_read_and_written_the_same() -> None:
    lanes = {SparkLane(topic, number): at for topic, number, at in SPARK["lanes"]}
    assert from_offset(json.loads(SPARK["offset"]), "clicks") == lanes
    # Spark compares texts: another one for the same positions would be a batch without records.
    assert json.dumps(to_offset("clicks", lanes)) == SPARK["offset"]


def test_a_querys_progress_says_what_is_done() -> None:
    lanes = {SparkLane(topic, number): at for topic, number, at in SPARK["lanes"]}
    token = json.loads(SPARK["progress"]["latestOffset"])["token"]
    (source,) = progress.source_progress([SPARK["progress"]])
    assert source._replace(ends={}) == progress.SourceProgress(
        "unix:/run/offramp.sock", "clicks", token, lanes, ends={}, skip_missing=True
    )

"""A data directory of the older release: today's sidecar goes on exactly where that one stopped."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from offramp.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2, consumer_pb2_grpc, log_pb2, log_pb2_grpc, record_pb2
from sidecar.brokers.base import Assigned, SourceSpec
from sidecar.model.records import Lane, Run
from sidecar.model.wire import decode_frame
from sidecar.subscription.dead_letters import list_dead_letters
from tests.brokers.local.harness import running
from tests.compatibility import FIXTURES, fixture, record_of
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.event_loop import on_event_loop
from tests.kit import subscription_settings

STORED = fixture("database.json")
SUBSCRIPTIONS = {
    "shop": {"topics": ["orders"], "batch": {"records": 1}, "parking": {"lanes": 2}},
    "audit": {"topics": ["orders"], "batch": {"records": 1}},
    "spark": {"topics": ["orders"], "mode": "ranges"},
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copyfile(FIXTURES / "offramp.db", folder / "offramp.db")
    return folder


@pytest.fixture
def sidecar(directory: Path) -> Iterator[Sidecar]:
    """Retention is off: the records are as old as the fixture."""
    broker = {"type": "local", "directory": str(directory), "retention_age": 0}
    with Sidecar(directory.parent, brokers={"local": broker}, subscriptions=SUBSCRIPTIONS) as started:
        yield started


@on_event_loop
async def test_every_record_is_read_as_it_was_published(directory: Path) -> None:
    async with running(directory, retention_age=0) as broker:
        for name, records in STORED["records"].items():
            topic, _, number = name.rpartition("/")
            lane = Lane(topic, int(number))
            end = (await broker.lane_ends(topic))[lane]
            chunks = [chunk async for chunk in broker.read(lane, Run(end.start, end.end), 1 << 20)]
            read = [decode_frame(frame) for chunk in chunks for frame in chunk.frames]
            assert read == [record_of(record) for record in records]


@pytest.mark.parametrize("group", ["shop", "audit"])
@on_event_loop
async def test_a_group_has_the_same_position_and_the_same_acks_beyond_it(directory: Path, group: str) -> None:
    async with running(directory, retention_age=0) as broker:
        source = broker.subscribe(SourceSpec(group, ("orders",)))
        await source.open()
        polled = await source.poll(1000, 1 << 20, 1.0)
        await source.close()
    assigned = [event for event in polled.events if isinstance(event, Assigned)]
    assert not any(event.first for event in assigned)
    assert {
        str(event.lane): {"position": event.start, "settled": [list(run) for run in event.settled]}
        for event in assigned
    } == STORED["groups"][group]


@on_event_loop
async def test_dead_letters_are_listed_as_they_were(directory: Path) -> None:
    def zipped(found: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
        return list(zip(found, STORED["dead_letters"], strict=True))

    async with running(directory, retention_age=0) as broker:
        found = (await list_dead_letters(broker, subscription_settings(group="shop"))).letters
    listed = [{name: getattr(one, name) for name in stored if name != "record"} for one, stored in zipped(found)]
    assert listed == [{k: v for k, v in stored.items() if k != "record"} for stored in STORED["dead_letters"]]
    assert [one.record for one in found] == [record_of(stored["record"]) for stored in STORED["dead_letters"]]


def test_what_was_not_settled_is_delivered_and_what_was_parked_comes_back(sidecar: Sidecar) -> None:
    with sidecar.channel() as channel:
        # Lane, position, attempt, and whether it may have been processed: all of it was in hand before.
        assert taken(channel, "shop", 5) == {
            (0, 3, 1, True),
            (0, 6, 1, True),
            (0, 9, 1, True),
            (0, 7, 4, True),
            (1, 0, 4, True),
        }
        eventually(lambda: committed(sidecar, "shop") == {0: 10, 1: 6}, "all of it is committed")


def test_another_group_of_the_topic_is_not_affected(sidecar: Sidecar) -> None:
    with sidecar.channel() as channel:
        delivered = {(lane, position) for lane, position, _, _ in taken(channel, "audit", 14)}
        assert delivered == {(0, position) for position in range(2, 10)} | {(1, position) for position in range(6)}


def test_dead_letters_are_redriven(sidecar: Sidecar) -> None:
    with sidecar.channel() as channel:
        taken(channel, "shop", 5)
        admin = admin_pb2_grpc.AdminServiceStub(channel)
        *_, end = admin.Redrive(admin_pb2.RedriveRequest(subscription="shop", all=True))
        assert end.redriven == 2
        assert taken(channel, "shop", 2) == {(0, 4, 1, True), (0, 5, 1, True)}


def test_a_reader_of_ranges_keeps_its_token_and_its_place(sidecar: Sidecar) -> None:
    stored = STORED["ranges"]
    with sidecar.channel() as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        at = log_pb2.LanePosition(topic="orders", lane=0, position=5)
        request = log_pb2.CommitUpToRequest(subscription="spark", token=stored["token"], positions=[at])
        positions = {f"{one.topic}/{one.lane}": one.position for one in stub.CommitUpTo(request).committed}
        assert positions == stored["positions"] | {"orders/0": 5}
        reader = sidecar.status("spark").reader
        assert (reader.name, reader.token) == (stored["reader"], stored["token"])
        newer = stub.Attach(log_pb2.AttachRequest(subscription="spark", reader="another"))
        assert newer.token > stored["token"]


def committed(sidecar: Sidecar, subscription: str) -> dict[int, int]:
    return {lane.lane: lane.committed for lane in sidecar.status(subscription).lanes if not lane.parked}


def taken(channel: grpc.Channel, subscription: str, records: int) -> set[tuple[int, int, int, bool]]:
    """Lane, position, attempt and `possibly_processed` of so many records, and of any that come at once after these.
    Each is acked."""
    stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
    found: set[tuple[int, int, int, bool]] = set()
    settlements: list[record_pb2.Settlement] = []
    ends = time.monotonic() + WAIT_TIMEOUT
    while True:
        wait_ms = 1_000 if len(found) < records and time.monotonic() < ends else 100
        request = consumer_pb2.FetchRequest(subscription=subscription, settlements=settlements, wait_ms=wait_ms)
        batches = stub.Fetch(request).batches
        if not batches and wait_ms == 100:
            return found
        settlements = [record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK) for batch in batches]
        for batch in batches:
            (record,) = batch.records
            told = batch.redeliveries[0] if batch.redeliveries else record_pb2.Redelivery(attempt=1)
            found.add((record.lane, record.position, told.attempt, told.possibly_processed))

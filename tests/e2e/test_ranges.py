"""Ranges on real sidecars that are killed, on every broker."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from offramp.v1 import log_pb2
from tests.brokers.harness import name, numbered
from tests.e2e.harness import Sidecar, eventually, offramp, refused
from tests.e2e.load import faults
from tests.e2e.pulsar.snapshot import client_of
from tests.e2e.ranges import At, Reader
from tests.servers.process import free_ports

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
ROUNDS = 30 if LONG else 4

ABORTED, UNMET = grpc.StatusCode.ABORTED, grpc.StatusCode.FAILED_PRECONDITION
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Site(ABC):
    """A broker with a topic of two lanes, and sidecars that read it by ranges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topic = name("topic")
        self._made: list[Sidecar] = []

    @property
    @abstractmethod
    def broker(self) -> dict[str, Any]:
        """As in the configuration."""

    @abstractmethod
    def publish(self, lane: int, *values: bytes) -> None: ...

    @abstractmethod
    def add_lane(self) -> None:
        """The topic has three lanes then."""

    def sidecar(self, mode: str = "ranges") -> Sidecar:
        subscription = {"broker": "it", "topics": [self.topic], "group": self.topic, "mode": mode}
        made = Sidecar(
            self.folder, name=f"s{len(self._made)}", subscriptions={"orders": subscription}, brokers={"it": self.broker}
        )
        self._made.append(made)
        return made.start()

    def close(self) -> None:
        for sidecar in self._made:
            sidecar.__exit__(None, None, None)


class LocalSite(Site):
    """One sidecar at a time, and its port for publishing."""

    @property
    def broker(self) -> dict[str, Any]:
        return {"type": "local", "directory": str(self.folder / "data"), "lanes": 2}

    def publish(self, lane: int, *values: bytes) -> None:
        running = next(one for one in self._made if one.process.poll() is None)
        running.publish(self.topic, values, lane=lane, broker="it")

    def add_lane(self) -> None:
        pytest.skip("lanes are added to a local topic by code alone; see the tests of the service")


class KafkaSite(Site):
    def __init__(self, folder: Path, server: Any) -> None:
        super().__init__(folder)
        self._server = server
        server.make_topic(self.topic, 2)

    @property
    def broker(self) -> dict[str, Any]:
        return {"type": "kafka", "servers": [self._server.bootstrap]}

    def publish(self, lane: int, *values: bytes) -> None:
        self._server.publish(self.topic, *values, lane=lane)

    def add_lane(self) -> None:
        for future in self._server.admin.create_partitions([NewPartitions(self.topic, 3)]).values():
            future.result()


class PulsarSite(Site):
    def __init__(self, folder: Path, server: Any) -> None:
        super().__init__(folder)
        self._server = server
        server.make_topic(self.topic, 2)
        # What nobody waits for, Pulsar removes.
        for lane in range(2):
            path = f"persistent/public/default/{self.topic}-partition-{lane}/subscription/keep"
            server.admin("PUT", path, {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})

    @property
    def broker(self) -> dict[str, Any]:
        return {"type": "pulsar", "url": self._server.url, "admin_url": self._server.admin_url, "discover_every": "1s"}

    def publish(self, lane: int, *values: bytes) -> None:
        with client_of(self._server) as client:
            producer = client.create_producer(f"{self.topic}-partition-{lane}", batching_enabled=False)
            for value in values:
                producer.send(value)

    def add_lane(self) -> None:
        self._server.admin("POST", f"persistent/public/default/{self.topic}/partitions", 3)


@pytest.fixture(params=["local", "kafka", "pulsar"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    match request.param:
        case "local":
            made: Site = LocalSite(tmp_path)
        case "kafka":
            made = KafkaSite(tmp_path, request.getfixturevalue("kafka"))
        case _:
            made = PulsarSite(tmp_path, request.getfixturevalue("pulsar"))
    with closing(made):
        yield made


def test_killed_between_calls_a_reader_gets_every_record_once(site: Site) -> None:
    """As a driver with a checkpoint does it: the range is written down, read, and only then committed."""
    chance = faults.chance()
    sidecar = site.sidecar()
    reader = Reader()
    site.publish(0, *numbered(300, "a"))
    site.publish(1, *numbered(200, "b"))
    reader.attach(sidecar)
    start = reader.resolve_start(sidecar)

    def perhaps_kill() -> None:
        if chance.random() < 0.4:
            sidecar.restart()

    at: At = start
    seen: dict[tuple[str, int], list[bytes]] = {lane: [] for lane in start}
    for number in range(ROUNDS):
        perhaps_kill()
        if number == 0:
            sidecar.restart()
            assert reader.resolve_start(sidecar) == start
        limit = 1000 if number == ROUNDS - 1 else 120
        until = reader.plan(sidecar, at, max_records=limit)
        assert reader.plan(sidecar, at, max_records=limit) == until
        perhaps_kill()
        got = reader.read(sidecar, at, until)
        perhaps_kill()
        assert reader.read(sidecar, at, until) == got
        for lane, found in got.items():
            seen[lane] += found
        committed = reader.commit(sidecar, until)
        assert committed == until
        perhaps_kill()
        at = until
    assert seen == {(site.topic, 0): numbered(300, "a"), (site.topic, 1): numbered(200, "b")}
    # What an operator sees is true.
    eventually(lambda: [lane.lag for lane in sidecar.status().lanes] == [0, 0], "no lag is left")
    assert sidecar.status().reader.name == "query"
    assert sidecar.metric("offramp_lane_lag_records", subscription="orders") == 0


def test_a_driver_that_was_replaced_cannot_commit_at_any_sidecar(site: Site) -> None:
    here = site.sidecar()
    site.publish(0, *numbered(20, "a"))
    old = Reader()
    old.attach(here, "old")
    start = old.resolve_start(here)
    half = old.plan(here, start, max_records=10)
    old.commit(here, half)
    if isinstance(site, LocalSite):
        # A directory has one sidecar at a time: the next one stands for another.
        here.kill()
        here = there = site.sidecar()
    else:
        there = site.sidecar()
    new = Reader()
    assert new.attach(there, "new") == half
    end = new.plan(there, half)
    for sidecar in (here, there):
        with refused(ABORTED, "new"):
            old.commit(sidecar, end)
        with refused(ABORTED, "new"):
            old.resolve_start(sidecar)
    here.restart()
    with refused(ABORTED, "new"):
        old.commit(here, end)
    # The old one may still read, which does no harm, and the new one commits wherever it likes.
    assert old.read(here, half, end) == new.read(there, half, end)
    assert new.commit(here, end) == end


def test_lanes_that_are_added_while_it_runs_are_read_from_their_first_record(site: Site) -> None:
    sidecar = site.sidecar()
    site.publish(0, b"first")
    reader = Reader()
    reader.attach(sidecar)
    start = reader.resolve_start(sidecar, latest=log_pb2.StartLatest())
    site.add_lane()
    new = (site.topic, 2)
    begun = eventually(lambda: at if new in (at := reader.plan(sidecar, start)) else None, "the lane is planned")
    site.publish(2, *numbered(5, "n"))
    until = eventually(lambda: at if (at := reader.plan(sidecar, begun))[new] > begun[new] else None, "it has records")
    assert reader.read(sidecar, begun, until)[new] == numbered(5, "n")
    assert reader.commit(sidecar, until)[new] == until[new]


def test_leases_and_ranges_do_not_mix_under_one_group(site: Site) -> None:
    if isinstance(site, LocalSite):
        pytest.skip("one sidecar at a time has the directory; `offramp lint` refuses two of a group in one")
    ranged = site.sidecar()
    site.publish(0, *numbered(5, "a"))
    reader = Reader()
    reader.attach(ranged)
    start = reader.resolve_start(ranged)
    leased = site.sidecar("leases")
    eventually(lambda: leased.status().counters.fetched == 5, "the leased subscription has its records")
    for call in (lambda: reader.attach(ranged), lambda: reader.commit(ranged, start)):
        with refused(UNMET, "by leases", "another `group`"):
            call()
    # Who only reads harms nobody.
    until = reader.plan(ranged, start)
    assert reader.read(ranged, start, until)[site.topic, 0] == numbered(5, "a")
    # And the other way round: a leased subscription has no ranges, and a ranged one no leases.
    with refused(UNMET, "`mode: leases`"):
        reader.attach(leased)


def test_what_kafka_has_removed_is_named(kafka: Any, tmp_path: Path) -> None:
    with closing(KafkaSite(tmp_path, kafka)) as site:
        sidecar = site.sidecar()
        site.publish(0, *numbered(100, "a"))
        reader = Reader()
        reader.attach(sidecar)
        start = reader.resolve_start(sidecar)
        end = reader.plan(sidecar, start)
        for future in kafka.admin.delete_records([TopicPartition(site.topic, 0, 40)]).values():
            future.result()
        with refused(grpc.StatusCode.OUT_OF_RANGE, "begins at 40", "has removed 0 to 39"):
            reader.read(sidecar, start, end)
        first = reader.locate(sidecar, earliest=log_pb2.StartEarliest())
        assert first[site.topic, 0] == 40
        assert reader.read(sidecar, first, end)[site.topic, 0] == numbered(100, "a")[40:]


def test_a_broker_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    subscription = {"broker": "it", "topics": ["t"], "mode": "ranges"}
    broker = {"type": "kafka", "servers": [f"127.0.0.1:{port}"]}
    with Sidecar(tmp_path, subscriptions={"orders": subscription}, brokers={"it": broker}) as sidecar:
        with refused(UNAVAILABLE, "broker it"):
            Reader().attach(sidecar)
        with refused(UNAVAILABLE, "broker it"):
            Reader().read(sidecar, {("t", 0): 0}, {("t", 0): 1})


def test_the_metrics_and_the_commands_tell_of_a_reader(tmp_path: Path) -> None:
    with closing(LocalSite(tmp_path)) as site:
        sidecar = site.sidecar()
        site.publish(0, *numbered(7, "a"))
        reader = Reader()
        reader.attach(sidecar, "clicks")
        start = reader.resolve_start(sidecar)
        reader.commit(sidecar, reader.plan(sidecar, start, max_records=4))
        assert sidecar.metric("offramp_reader_attached_seconds", reader="clicks") >= 0
        assert sidecar.metric("offramp_lane_committed_position", lane="0") == 4
        assert sidecar.metric("offramp_lane_lag_records", lane="0") == 3
        status = offramp("status", "--address", sidecar.target, check=True).stdout
        assert f"{site.topic} on it, group {site.topic}, by ranges" in status
        assert "reader: clicks, attached " in status
        assert "by ranges" in offramp("lint", "--config", str(sidecar.folder / "s0.yaml"), check=True).stdout

"""Sidecars, workers and the broker killed and stopped under load: nothing is lost, and keys stay in order."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers.harness import new_topic
from tests.e2e.harness import eventually
from tests.e2e.kafka.fleet import Fleet
from tests.e2e.kafka.load import Load
from tests.e2e.load import faults
from tests.e2e.load.kinds import Kind
from tests.servers.kafka import KafkaServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 2
LANES = 12

rounds = pytest.mark.parametrize("protocol", ["consumer", "classic"] * (ROUNDS // 2))


@rounds
def test_one_sidecar_is_killed_and_one_comes_under_load(kafka: KafkaServer, tmp_path: Path, protocol: str) -> None:
    chance, topic = faults.chance(), new_topic(kafka, LANES)
    with (
        Fleet(tmp_path, kafka, topic, LANES, protocol=protocol, order="key") as fleet,
        Load(kafka, topic, chance, faults.IN_ORDER) as load,
    ):
        snapshot = faults.kill_one_sidecar_and_add_one(fleet, load, chance)
    fleet.audit.check_order(snapshot)


@rounds
def test_the_broker_is_killed_and_comes_back(own_kafka: KafkaServer, tmp_path: Path, protocol: str) -> None:
    chance, topic = faults.chance(), new_topic(own_kafka, LANES)
    with (
        Fleet(tmp_path, own_kafka, topic, LANES, protocol=protocol) as fleet,
        Load(own_kafka, topic, chance, faults.ANY_ORDER) as load,
    ):
        snapshot = faults.kill_the_broker(fleet, load, chance, own_kafka, sidecars=2)
    assert snapshot.parked


@rounds
def test_a_sidecar_is_stopped_under_load_while_a_worker_is_slow(
    kafka: KafkaServer, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(kafka, LANES)
    with (
        Fleet(tmp_path, kafka, topic, LANES, protocol=protocol, drain="3s") as fleet,
        Load(kafka, topic, faults.chance(), faults.ANY_ORDER) as load,
    ):
        leaving = fleet.add("threads", "fetch", stuck=600.0)
        stuck = load.place(Kind.STUCK)
        eventually(lambda: stuck in fleet.taken(), "a worker is at it")
        fleet.works(leaving, 100)
        assert leaving.terminate() == 0
        assert leaving.event("drained")["seconds"] > 2.5
        # What it answered SETTLED is committed, and what the slow worker holds is not.
        snapshot = fleet.check()
        lost = fleet.audit.settled_and_not_committed(snapshot)
        assert not lost, lost[:10]
        assert stuck not in snapshot.committed
        for workers in fleet.workers:
            workers.__exit__()
        fleet.works(fleet.add())
        faults.finish(fleet, load)
    assert not fleet.audit.broken
    assert not fleet.audit.surprises


def test_one_lane_of_forty_is_slow_and_the_others_go_on(kafka: KafkaServer, tmp_path: Path) -> None:
    lanes = 40
    topic = new_topic(kafka, lanes)
    load = Load(kafka, topic, random.Random(1), {})
    load.produce_at(0, *[Kind.STUCK] * 5, *[Kind.OK] * 495)
    for lane in range(1, lanes):
        load.produce_at(lane, *[Kind.OK] * 100)
    load.flush()
    with Fleet(tmp_path, kafka, topic, lanes, batch={"records": 1}, window={"records": 20}, drain="0s") as fleet:
        fleet.add("threads", "threads", "fetch", "fetch", stuck=600.0)
        others = 39 * 100
        eventually(lambda: sum(spot.lane > 0 for spot in fleet.acked()) == others, "the other lanes are done", 240.0)
        done = Counter(spot.lane for spot in fleet.acked())
        # What went past the slow ones is a window at the most.
        assert done[0] < 20
        eventually(
            lambda: {lane for lane, left in fleet.left().items() if left} == {0}, "the other lanes are committed"
        )
        assert len(fleet.check().records) == 500 + others

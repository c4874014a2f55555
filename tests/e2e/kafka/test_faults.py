"""Sidecars, workers and the broker killed and stopped under load: nothing is lost, and keys stay in order."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers.kafka import name
from tests.e2e.harness import eventually
from tests.e2e.kafka.fleet import Fleet
from tests.e2e.kafka.load import Load
from tests.e2e.load.kinds import Kind
from tests.servers.fixtures import NewKafka
from tests.servers.kafka import KafkaServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 2
LANES = 12
#: with an order of keys, what waits is waited for
IN_ORDER = {Kind.OK: 0.93, Kind.FLAKY: 0.05, Kind.SLOW: 0.01, Kind.BAD: 0.01}
ANY_ORDER = {Kind.OK: 0.92, Kind.FLAKY: 0.04, Kind.SLOW: 0.01, Kind.LATER: 0.02, Kind.BAD: 0.01}

rounds = pytest.mark.parametrize(
    ("number", "protocol"), [(number, ("consumer", "classic")[number % 2]) for number in range(ROUNDS)]
)


def _chance(number: int) -> random.Random:
    seed = int(os.environ.get("OFFRAMP_TEST_SEED") or random.randrange(1 << 32))
    # Shown if the test fails. The moments of other processes are not ours, so it repeats the plan, not the history.
    print(f"OFFRAMP_TEST_SEED={seed}, round {number}")
    return random.Random(seed)


@rounds
def test_one_sidecar_is_killed_and_one_comes_under_load(
    kafka: KafkaServer, tmp_path: Path, number: int, protocol: str
) -> None:
    chance = _chance(number)
    topic = name("orders")
    kafka.make_topic(topic, LANES)
    with (
        Fleet(tmp_path, kafka, topic, LANES, protocol=protocol, order="key") as fleet,
        Load(kafka, topic, chance, IN_ORDER) as load,
    ):
        for _ in range(3):
            fleet.works(fleet.add())
        victim = fleet.sidecars[chance.randrange(3)]
        time.sleep(chance.uniform(0.0, 0.5))
        victim.kill()
        fleet.check()
        newcomer = fleet.add()
        fleet.works(newcomer)
        fleet.check()
        load.stop()
        snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    out_of_order = fleet.audit.out_of_order(snapshot)
    assert not out_of_order, out_of_order[:10]
    # It was a load worth the name.
    assert len(snapshot.records) > 500
    assert {spot.lane for spot in snapshot.records} == set(range(LANES))


@rounds
def test_the_broker_is_killed_and_comes_back(new_kafka: NewKafka, tmp_path: Path, number: int, protocol: str) -> None:
    chance = _chance(number)
    kafka, topic = new_kafka(), name("orders")
    kafka.make_topic(topic, LANES)
    with (
        Fleet(tmp_path, kafka, topic, LANES, protocol=protocol) as fleet,
        Load(kafka, topic, chance, ANY_ORDER) as load,
    ):
        fleet.works(fleet.add())
        fleet.works(fleet.add())
        time.sleep(chance.uniform(0.0, 0.5))
        kafka.kill()
        for sidecar in fleet.sidecars:
            eventually(lambda: sidecar.status().trouble, "the status says that the broker is away")  # noqa: B023
        kafka.start()
        fleet.check()
        for sidecar in fleet.sidecars:
            fleet.works(sidecar)
            eventually(lambda: not sidecar.status().trouble, "the trouble is over")  # noqa: B023
        load.stop()
        snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    assert len(snapshot.records) > 500
    assert snapshot.parked
    assert snapshot.dead


@rounds
def test_a_sidecar_is_stopped_under_load_while_a_worker_is_slow(
    kafka: KafkaServer, tmp_path: Path, number: int, protocol: str
) -> None:
    chance = _chance(number)
    topic = name("orders")
    kafka.make_topic(topic, LANES)
    with (
        Fleet(tmp_path, kafka, topic, LANES, protocol=protocol, drain="3s") as fleet,
        Load(kafka, topic, chance, ANY_ORDER) as load,
    ):
        leaving = fleet.add("threads", "fetch", stuck=600.0)
        stuck = load.place(Kind.STUCK)
        eventually(lambda: stuck in fleet.taken(), "a worker is at it")
        fleet.works(leaving, 100)
        assert leaving.terminate() == 0
        assert leaving.event("drained")["seconds"] > 2.5
        # All that it said to count is committed, and what the slow worker holds is not.
        snapshot = fleet.check()
        lost = fleet.audit.settled_and_not_committed(snapshot)
        assert not lost, lost[:10]
        assert stuck not in snapshot.committed
        for workers in fleet.workers:
            workers.__exit__()
        fleet.works(fleet.add())
        load.stop()
        snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    assert not fleet.audit.broken
    assert not fleet.audit.surprises


def test_one_lane_of_forty_is_slow_and_the_others_go_on(kafka: KafkaServer, tmp_path: Path) -> None:
    lanes = 40
    topic = name("orders")
    kafka.make_topic(topic, lanes)
    load = Load(kafka, topic, random.Random(1), {})
    load.produce(*[Kind.STUCK] * 5, *[Kind.OK] * 495, lane=0)
    for lane in range(1, lanes):
        load.produce(*[Kind.OK] * 100, lane=lane)
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

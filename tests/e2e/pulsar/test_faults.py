"""Sidecars and the broker killed under load: nothing is lost, keys stay in order, and the backlog reaches zero."""

import os
import random
import time
from pathlib import Path

import pytest

from tests.brokers.pulsar import name
from tests.e2e.harness import eventually
from tests.e2e.load.kinds import Kind
from tests.e2e.pulsar.fleet import Fleet
from tests.e2e.pulsar.load import Load
from tests.servers.fixtures import NewPulsar
from tests.servers.pulsar import PulsarServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 1
LANES = 4
#: with an order of keys, what waits is waited for
IN_ORDER = {Kind.OK: 0.93, Kind.FLAKY: 0.05, Kind.SLOW: 0.01, Kind.BAD: 0.01}
ANY_ORDER = {Kind.OK: 0.92, Kind.FLAKY: 0.04, Kind.SLOW: 0.01, Kind.LATER: 0.02, Kind.BAD: 0.01}

rounds = pytest.mark.parametrize("number", range(ROUNDS))
kinds = pytest.mark.parametrize("kind", ["shared", "key_shared"])


def _chance(number: int) -> random.Random:
    seed = int(os.environ.get("OFFRAMP_TEST_SEED") or random.randrange(1 << 32))
    # Shown if the test fails. The moments of other processes are not ours, so it repeats the plan, not the history.
    print(f"OFFRAMP_TEST_SEED={seed}, round {number}")
    return random.Random(seed)


@rounds
@kinds
def test_one_sidecar_is_killed_and_one_comes_under_load(
    pulsar: PulsarServer, tmp_path: Path, number: int, kind: str
) -> None:
    chance = _chance(number)
    topic = name("orders")
    pulsar.make_topic(topic, LANES)
    by_key = kind == "key_shared"
    order, shares = ("key", IN_ORDER) if by_key else ("none", ANY_ORDER)
    with (
        Fleet(tmp_path, pulsar, topic, LANES, kind, order=order) as fleet,
        Load(pulsar, topic, chance, shares, by_key=by_key) as load,
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
    if by_key:
        out_of_order = fleet.audit.out_of_order(snapshot)
        assert not out_of_order, out_of_order[:10]
    # It was a load worth the name.
    assert len(snapshot.records) > 500
    assert {spot.lane for spot in snapshot.records} == set(range(LANES))


@pytest.mark.parametrize(
    # The library waits longer and longer before it connects again, so that this takes a minute. In the short form one
    # type with acks of single messages, and one with acks up to a position.
    ("number", "kind"),
    [(number, ("key_shared", "failover", "shared", "exclusive")[number % 4]) for number in range(ROUNDS + 1)],
)
def test_the_broker_is_killed_and_comes_back(new_pulsar: NewPulsar, tmp_path: Path, number: int, kind: str) -> None:
    chance = _chance(number)
    pulsar, topic = new_pulsar(), name("orders")
    pulsar.make_topic(topic, LANES)
    by_key = kind != "shared"
    order, shares = ("key", IN_ORDER) if by_key else ("none", ANY_ORDER)
    with (
        Fleet(tmp_path, pulsar, topic, LANES, kind, order=order) as fleet,
        Load(pulsar, topic, chance, shares, by_key=by_key) as load,
    ):
        fleet.works(fleet.add())
        if kind in ("shared", "key_shared"):
            # One that stands by has nothing to do, and one beside an exclusive one is refused.
            fleet.works(fleet.add())
        time.sleep(chance.uniform(0.0, 0.5))
        pulsar.kill()
        for sidecar in fleet.sidecars:
            eventually(lambda: sidecar.status().trouble, "the status says that the broker is away")  # noqa: B023
        pulsar.start()
        fleet.check()
        for sidecar in fleet.sidecars:
            fleet.works(sidecar)
            eventually(lambda: not sidecar.status().trouble, "the trouble is over")  # noqa: B023
        load.stop()
        snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    if kind in ("exclusive", "failover"):
        # Acks that the broker has lost bring their records again: in order, and flagged, as `finish` has checked.
        out_of_order = fleet.audit.out_of_order(snapshot)
        assert not out_of_order, out_of_order[:10]
    assert len(snapshot.records) > 500
    assert snapshot.dead


@rounds
def test_a_standby_goes_on_from_what_was_acked_when_the_active_one_dies(
    pulsar: PulsarServer, tmp_path: Path, number: int
) -> None:
    chance = _chance(number)
    topic = name("orders")
    pulsar.make_topic(topic, LANES)
    with (
        Fleet(tmp_path, pulsar, topic, LANES, "failover") as fleet,
        Load(pulsar, topic, chance, ANY_ORDER, by_key=False) as load,
    ):
        active = fleet.add()
        fleet.works(active, 200)
        standby = fleet.add()
        fleet.works(active)
        time.sleep(chance.uniform(0.0, 0.5))
        active.kill()
        fleet.check()
        fleet.works(standby, 200)
        load.stop()
        snapshot = fleet.finish()
    assert load.confirmed.keys() <= snapshot.records.keys()
    # What comes again is little: what was in hand, and the acks that were on their way.
    assert fleet.audit.repeats < len(snapshot.records) / 2

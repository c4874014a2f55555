"""Sidecars and the broker killed under load: nothing is lost, keys stay in order, and the backlog reaches zero."""

import os
import time
from pathlib import Path

import pytest

from tests.brokers.harness import new_topic
from tests.e2e.load import faults
from tests.e2e.pulsar.fleet import Fleet
from tests.e2e.pulsar.load import Load
from tests.servers.pulsar import PulsarServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 1
LANES = 4

rounds = pytest.mark.parametrize("number", range(ROUNDS))


@rounds
@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_one_sidecar_is_killed_and_one_comes_under_load(
    pulsar: PulsarServer, tmp_path: Path, number: int, kind: str
) -> None:
    chance, topic = faults.chance(), new_topic(pulsar, LANES)
    by_key = kind == "key_shared"
    order, shares = ("key", faults.IN_ORDER) if by_key else ("none", faults.ANY_ORDER)
    with (
        Fleet(tmp_path, pulsar, topic, LANES, kind, order=order) as fleet,
        Load(pulsar, topic, chance, shares, by_key=by_key) as load,
    ):
        snapshot = faults.kill_one_sidecar_and_add_one(fleet, load, chance)
    if by_key:
        fleet.audit.check_order(snapshot)


@pytest.mark.parametrize(
    # The library waits longer and longer before it connects again, so that this takes a minute. In the short form one
    # type with acks of single messages, and one with acks up to a position.
    ("number", "kind"),
    [(number, ("key_shared", "failover", "shared", "exclusive")[number % 4]) for number in range(ROUNDS + 1)],
)
def test_the_broker_is_killed_and_comes_back(own_pulsar: PulsarServer, tmp_path: Path, number: int, kind: str) -> None:
    chance, topic = faults.chance(), new_topic(own_pulsar, LANES)
    by_key = kind != "shared"
    order, shares = ("key", faults.IN_ORDER) if by_key else ("none", faults.ANY_ORDER)
    # One that stands by has nothing to do, and one beside an exclusive one is refused.
    sidecars = 2 if kind in ("shared", "key_shared") else 1
    with (
        Fleet(tmp_path, own_pulsar, topic, LANES, kind, order=order) as fleet,
        Load(own_pulsar, topic, chance, shares, by_key=by_key) as load,
    ):
        snapshot = faults.kill_the_broker(fleet, load, chance, own_pulsar, sidecars)
    if kind in ("exclusive", "failover"):
        # Acks that the broker has lost bring their records again: in order, and flagged, as `finish` has checked.
        fleet.audit.check_order(snapshot)


@rounds
def test_a_standby_goes_on_from_what_was_acked_when_the_active_one_dies(
    pulsar: PulsarServer, tmp_path: Path, number: int
) -> None:
    chance, topic = faults.chance(), new_topic(pulsar, LANES)
    with (
        Fleet(tmp_path, pulsar, topic, LANES, "failover") as fleet,
        Load(pulsar, topic, chance, faults.ANY_ORDER, by_key=False) as load,
    ):
        active = fleet.add()
        fleet.works(active, 200)
        standby = fleet.add()
        fleet.works(active)
        time.sleep(chance.uniform(0.0, 0.5))
        active.kill()
        fleet.check()
        fleet.works(standby, 200)
        snapshot = faults.finish(fleet, load)
    # What comes again is little: what was in hand, and the acks that were on their way.
    assert fleet.audit.repeats < len(snapshot.records) / 2

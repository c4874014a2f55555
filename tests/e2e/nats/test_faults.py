"""Sidecars and the server killed, frozen and cut off under load: nothing is lost, and the backlog reaches zero."""

import os
import time
from pathlib import Path

import pytest

from tests.brokers.harness import new_topic
from tests.e2e.harness import eventually
from tests.e2e.load import faults
from tests.e2e.nats.fleet import Fleet
from tests.e2e.nats.load import Load
from tests.servers.nats import NatsServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 1
LANES = 2

rounds = pytest.mark.parametrize("number", range(ROUNDS))


@rounds
def test_one_sidecar_is_killed_and_one_comes_under_load(nats: NatsServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(nats, LANES)
    with (
        Fleet(tmp_path, nats, topic, LANES) as fleet,
        Load(nats, topic, LANES, chance, faults.ANY_ORDER) as load,
    ):
        faults.kill_one_sidecar_and_add_one(fleet, load, chance)


@rounds
def test_the_server_is_killed_and_comes_back(own_nats: NatsServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(own_nats, LANES)
    with (
        Fleet(tmp_path, own_nats, topic, LANES) as fleet,
        Load(own_nats, topic, LANES, chance, faults.ANY_ORDER) as load,
    ):
        faults.kill_the_broker(fleet, load, chance, own_nats, sidecars=2)


@rounds
def test_the_server_freezes_for_longer_than_anybody_waits(own_nats: NatsServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(own_nats, LANES)
    with (
        Fleet(tmp_path, own_nats, topic, LANES) as fleet,
        Load(own_nats, topic, LANES, chance, faults.ANY_ORDER) as load,
    ):
        sidecar = fleet.add()
        fleet.works(sidecar)
        time.sleep(chance.uniform(0.0, 0.5))
        own_nats.freeze()
        eventually(lambda: sidecar.status().trouble, "it says so", 120.0)
        own_nats.thaw()
        fleet.works(sidecar)
        eventually(lambda: not sidecar.status().trouble, "the trouble is over")
        faults.finish(fleet, load)

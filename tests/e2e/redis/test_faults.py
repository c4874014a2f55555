"""Sidecars and the server killed, frozen and cut off under load: nothing is lost, and the backlog reaches zero."""

import os
import time
from pathlib import Path

import pytest

from tests.brokers.harness import new_topic
from tests.e2e.harness import eventually
from tests.e2e.load import faults
from tests.e2e.redis.fleet import Fleet
from tests.e2e.redis.load import Load
from tests.servers.redis import RedisServer

ROUNDS = 20 if os.environ.get("OFFRAMP_TEST_LONG") else 1
LANES = 2

rounds = pytest.mark.parametrize("number", range(ROUNDS))


@rounds
def test_one_sidecar_is_killed_and_one_comes_under_load(redis: RedisServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(redis, LANES)
    with (
        Fleet(tmp_path, redis, topic, LANES) as fleet,
        Load(redis, topic, chance, faults.ANY_ORDER) as load,
    ):
        faults.kill_one_sidecar_and_add_one(fleet, load, chance)


@rounds
def test_the_server_is_killed_and_comes_back(own_redis: RedisServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(own_redis, LANES)
    with (
        Fleet(tmp_path, own_redis, topic, LANES) as fleet,
        Load(own_redis, topic, chance, faults.ANY_ORDER) as load,
    ):
        faults.kill_the_broker(fleet, load, chance, own_redis, sidecars=2)


@rounds
def test_the_server_freezes_for_longer_than_anybody_waits(own_redis: RedisServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(own_redis, LANES)
    with (
        Fleet(tmp_path, own_redis, topic, LANES) as fleet,
        Load(own_redis, topic, chance, faults.ANY_ORDER) as load,
    ):
        sidecar = fleet.add()
        fleet.works(sidecar)
        time.sleep(chance.uniform(0.0, 0.5))
        own_redis.freeze()
        eventually(lambda: any("does not answer" in line for line in sidecar.status().trouble), "it says so", 120.0)
        own_redis.thaw()
        fleet.works(sidecar)
        eventually(lambda: not sidecar.status().trouble, "the trouble is over")
        faults.finish(fleet, load)


@rounds
def test_all_connections_are_cut_again_and_again(own_redis: RedisServer, tmp_path: Path, number: int) -> None:
    chance, topic = faults.chance(), new_topic(own_redis, LANES)
    with (
        Fleet(tmp_path, own_redis, topic, LANES) as fleet,
        Load(own_redis, topic, chance, faults.ANY_ORDER) as load,
    ):
        sidecar = fleet.add()
        for _ in range(5):
            with own_redis.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            fleet.works(sidecar)
        faults.finish(fleet, load)

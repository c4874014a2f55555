"""Redis keeps the adapter contract, and so does Valkey: in the short form what depends on how the server answers."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers.contract import AdapterContract
from tests.brokers.contract.committing import Committing
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.publishing import Publishing
from tests.brokers.harness import Harness
from tests.brokers.redis.harness import RedisHarness
from tests.servers import redis as servers
from tests.servers.redis import RedisServer
from tests.servers.tools import Missing, give_up


class Core(Opening, Committing, Publishing):
    """What the server has most to do with."""


Some: Any = AdapterContract if os.environ.get("OFFRAMP_TEST_LONG") else Core


class TestRedis(AdapterContract):
    @pytest.fixture
    def harness(self, redis: RedisServer) -> Harness:
        return RedisHarness(redis)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    try:
        server = RedisServer.create(tmp_path_factory.mktemp("valkey"), program=servers.valkey())
    except Missing as missing:
        give_up(missing)
    server.start()
    yield server
    server.discard()


class TestValkey(Some):  # type: ignore[misc]
    @pytest.fixture
    def harness(self, valkey: RedisServer) -> Harness:
        return RedisHarness(valkey)

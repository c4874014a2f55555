"""The promises on Redis."""

import pytest

from tests.brokers.harness import Harness
from tests.brokers.redis.harness import NEVER, RedisHarness
from tests.promises.adjustable_time import AdjustableClock
from tests.promises.suite import Promises
from tests.servers.redis import RedisServer


class TestRedis(Promises):
    @pytest.fixture
    def harness(self, redis: RedisServer) -> Harness:
        return RedisHarness(redis, AdjustableClock(), timeout=NEVER)

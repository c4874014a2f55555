"""Brokers that cannot be opened at once, or at all."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sidecar.brokers import connections
from sidecar.brokers.base import Broker
from sidecar.brokers.connections import Connections
from sidecar.model.errors import Corrupt, InvalidRequest, OfframpError, Refused, StartError, Unavailable, Unknown
from sidecar.settings import BrokerSettings
from tests.memory_broker import MemoryBroker, MemoryOptions
from tests.unit.server.grpc.service_kit import in_loop


class FlakyBroker(MemoryBroker):
    """A broker whose first attempts to open fail with these errors, and take this long."""

    def __init__(self, errors: Sequence[OfframpError] = (), takes: float = 0.0) -> None:
        super().__init__(MemoryOptions())
        self._errors = list(errors)
        self._takes = takes
        self.closed = False

    async def open(self) -> None:
        await asyncio.sleep(self._takes)
        if self._errors:
            raise self._errors.pop(0)
        await super().open()

    async def close(self) -> None:
        self.closed = True
        await super().close()


def made(**brokers: Any) -> Connections:
    settings = {name: BrokerSettings(name=name, type="memory", options=None) for name in brokers}

    def create(broker: BrokerSettings) -> Broker:
        if isinstance(brokers[broker.name], Exception):
            raise brokers[broker.name]
        broker_: Broker = brokers[broker.name]
        return broker_

    return Connections(settings, create)


@pytest.fixture(autouse=True)
def _fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FIRST_RETRY", 0.001)


@in_loop
async def test_a_broker_that_cannot_be_reached_does_not_hold_up_the_start_and_is_tried_again() -> None:
    brokers = made(good=FlakyBroker(), away=FlakyBroker([Unavailable("no route"), Refused("bad password")]))
    await brokers.open(timeout=10.0)
    assert brokers.usable("good")
    with pytest.raises(Unavailable, match="broker away: no route"):
        brokers.usable("away")
    async with asyncio.timeout(10):
        await brokers["away"].opened.wait()
    assert brokers.usable("away")
    assert brokers["away"].status().trouble == ""
    await brokers.close()


@in_loop
async def test_a_broker_that_takes_long_is_opened_while_the_sidecar_serves() -> None:
    slow = FlakyBroker(takes=0.2)
    brokers = made(slow=slow)
    await brokers.open(timeout=0.01)
    assert brokers["slow"].status().trouble == "not connected yet"
    async with asyncio.timeout(10):
        await brokers["slow"].opened.wait()
    await brokers.close()
    assert slow.closed


@pytest.mark.parametrize("error", [StartError("in use"), Corrupt("not a database")])
@in_loop
async def test_a_broker_that_can_never_be_opened_stops_the_start(error: OfframpError) -> None:
    brokers = made(broken=FlakyBroker([error]))
    with pytest.raises(type(error)):
        await brokers.open(timeout=10.0)
    assert brokers["broken"].status().trouble == str(error)
    await brokers.close()


@in_loop
async def test_closing_gives_up_what_is_not_open_and_closes_the_rest() -> None:
    stuck, good = FlakyBroker(takes=60.0), FlakyBroker()
    brokers = made(stuck=stuck, good=good)
    await brokers.open(timeout=0.01)
    await brokers.close()
    assert (stuck.closed, good.closed) == (False, True)


@in_loop
async def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(StartError, match=r"brokers.kafka: type memory needs a library.*confluent"):
        made(kafka=ImportError("No module named confluent_kafka"))


@in_loop
async def test_an_unknown_broker_is_refused_with_those_there_are() -> None:
    brokers = made(local=FlakyBroker())
    with pytest.raises(Unknown, match='"kafka"; there are: local'):
        brokers.usable("kafka")
    with pytest.raises(InvalidRequest, match="there are: local"):
        brokers.usable("")

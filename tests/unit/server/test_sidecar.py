"""The process as a whole, while one part is later than another."""

import asyncio
from pathlib import Path

import pytest

from sidecar import brokers
from sidecar.brokers.base import Broker
from sidecar.model.records import Message
from sidecar.server import sidecar as sidecar_module
from sidecar.server.sidecar import Sidecar
from sidecar.settings import BrokerSettings, HttpSettings, ListenSettings, Settings, SubscriptionSettings
from sidecar.subscription.subscription import Subscription
from tests.memory_broker import MemoryBroker, MemorySource
from tests.promises.adjustable_time import until
from tests.promises.audit import Audit
from tests.promises.worker import Worker
from tests.unit.server.grpc.service_kit import in_loop


class LateBroker(MemoryBroker):
    """Opens when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open = asyncio.Event()
        self.consumed = False

    async def open(self) -> None:
        await self.may_open.wait()

    def enter(self, source: MemorySource) -> None:
        self.consumed = True
        super().enter(source)


@in_loop
async def test_a_broker_that_opens_while_the_sidecar_drains_is_not_consumed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"prompt": MemoryBroker(), "late": LateBroker()}
    prompt, late = made["prompt"], made["late"]
    assert isinstance(late, LateBroker)

    def create(settings: BrokerSettings) -> Broker:
        return made[settings.name]

    monkeypatch.setattr(brokers, "create", create)
    monkeypatch.setattr(sidecar_module, "_BROKER_OPEN_TIMEOUT", 0.0)
    sidecar = Sidecar(
        Settings(
            listen=ListenSettings(socket=str(tmp_path / "s")),
            http=HttpSettings(address=""),
            brokers={name: BrokerSettings(name=name, type="memory", options=None) for name in made},
            subscriptions={name: SubscriptionSettings(name=name, broker=name, topics=("t",)) for name in made},
        )
    )
    await sidecar.start()
    draining = next(one for one in sidecar._registry if one.settings.name == "prompt")
    assert isinstance(draining, Subscription)
    worker = Worker(draining, Audit())
    await prompt.publish("t", [Message(None, b"held")])
    batch = await worker.next()
    stop = asyncio.create_task(sidecar.stop(10.0))
    await until(lambda: draining.draining, "the sidecar drains")
    late.may_open.set()
    await until(sidecar._connections["late"].opened.is_set, "the broker is open")
    # What waited for that has its turn before anybody hears of this.
    for _ in range(10):
        await asyncio.sleep(0)
    batch.ack()
    await stop
    assert not late.consumed

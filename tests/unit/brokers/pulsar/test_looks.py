"""The looks at Pulsar that go on beside consuming: new lanes, connections, ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.source import PulsarSource


def test_a_look_that_meets_what_nobody_foresaw_says_so_and_is_taken_again(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        broker: Any = SimpleNamespace(options=PulsarOptions(url="pulsar://nowhere"), library=None, admin=None)
        source = PulsarSource(broker, SourceSpec(group="group", topics=("orders",)))
        looks: asyncio.Queue[str] = asyncio.Queue()

        async def look() -> None:
            looks.put_nowait("a look")
            raise KeyError("lastConfirmedEntry")

        keeping = asyncio.create_task(source._keep(0.0, look))
        async with asyncio.timeout(10):
            await looks.get()
            await looks.get()
        keeping.cancel()

    asyncio.run(body())
    assert "a look at Pulsar failed" in caplog.text
    assert "lastConfirmedEntry" in caplog.text

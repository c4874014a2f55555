"""Lanes of Pulsar that fail as soon as they are joined anew."""

import asyncio

from sidecar.brokers.base import Trouble
from sidecar.brokers.pulsar.resting import Resting
from sidecar.model.errors import Unavailable
from tests.unit.brokers.pulsar.pulsar_kit import LANE, FakeConsumer, FakeOpening, MessageId, source_on


def test_a_lane_that_fails_again_soon_after_it_was_joined_anew_rests() -> None:
    resting = Resting()
    resting.failed(LANE, "it is closed", 0.0)
    assert LANE not in resting
    resting.joined(LANE, 1.0)
    resting.failed(LANE, "it cannot be read", 5.0)
    assert LANE in resting
    assert not resting.ended(14.0)
    assert resting.trouble(14.0) == "orders/0 fails whenever it is joined: it cannot be read"
    assert resting.ended(15.0)
    assert LANE not in resting


def test_a_lane_that_lasts_has_not_failed_again() -> None:
    resting = Resting()
    resting.failed(LANE, "it is closed", 0.0)
    resting.joined(LANE, 1.0)
    resting.failed(LANE, "it is closed", 20.0)
    assert LANE not in resting


def test_the_trouble_is_over_when_the_lane_lasts() -> None:
    resting = Resting()
    resting.joined(LANE, 1.0)
    resting.failed(LANE, "it cannot be read", 1.0)
    assert resting.ended(11.0)
    resting.joined(LANE, 11.0)
    assert resting.trouble(20.0)
    assert not resting.trouble(21.0)


def test_a_lane_that_fails_whenever_it_is_joined_is_not_joined_in_a_loop() -> None:
    class Unreadable(FakeConsumer):
        def batch_receive(self) -> list[object]:  # type: ignore[override]
            raise Unavailable("it cannot be read")

    async def body() -> None:
        consumers = [Unreadable() for _ in range(9)]
        for consumer in consumers:
            consumer.sends(MessageId(4, 0))
        opening = FakeOpening(*consumers)
        source = source_on(opening)
        await source._look_for_lanes()
        events = []
        for _ in range(6):
            events += (await source.poll(9, 1 << 20, 0.05)).events
            await source._look_at_connections()
        # The first time it may have been anything; the second time it rests.
        assert opening.joins == 2
        assert events[-1] == Trouble("lanes", "orders/0 fails whenever it is joined: it cannot be read")
        await source.close()

    asyncio.run(body())

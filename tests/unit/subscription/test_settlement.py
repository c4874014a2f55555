"""Settlements of one request: acks of whole batches are applied together, and all of them in order."""

import asyncio
from collections.abc import Sequence

from sidecar.model.records import ClientInfo, Credit, Delivery, Notice, Outcome, Part, Settlement, SettleStatus
from sidecar.settings import BatchSettings
from sidecar.subscription.session import Consumer
from sidecar.subscription.subscription import Subscription
from tests.kit import chunk, lane_state, subscription_settings
from tests.memory_broker import MemoryBroker

ACK, NACK = Outcome.ACK, Outcome.NACK


class Worker(Consumer):
    def __init__(self) -> None:
        self.leases: list[bytes] = []

    def deliver(self, delivery: Delivery) -> None:
        self.leases.append(delivery.lease)

    def notify(self, notice: Notice) -> None:
        pass


class Setup:
    """A subscription without loops, with batches of two in the hands of a worker."""

    def __init__(self, batches: int) -> None:
        settings = subscription_settings(batch=BatchSettings(records=2))
        self.subscription = Subscription(settings, MemoryBroker(), prefix=b"boot")
        self.tracker = self.subscription.tracker
        self.state = lane_state()
        self.tracker.add_lane(self.state)
        self.tracker.track(self.state, chunk([*range(2 * batches)]), 0.0)
        worker = Worker()
        self.session = self.subscription.connect(
            worker, client=ClientInfo(), credit=Credit(batches), max_message_bytes=1 << 20, lease=None
        )
        self.subscription._deliverer.deliver_ready()
        self.leases = worker.leases

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleStatus]:
        results = self.subscription.settle(settlements)
        assert [result.lease for result in results] == [settlement.lease for settlement in settlements]
        return [result.status for result in results]


async def play() -> None:
    setup = Setup(5)
    one, two, three, four, five = setup.leases
    half = (Part(0, 1, ACK),)
    said = setup.settle(
        [
            Settlement(one, ACK),
            Settlement(two, None, parts=half),
            Settlement(three, ACK),
            Settlement(one, NACK),  # settled otherwise a moment ago
            Settlement(four, NACK),
            Settlement(four, ACK),  # it waits for its retry, in another lease
            Settlement(b"unknown", ACK),
            Settlement(two, ACK),  # the other half
            Settlement(five, ACK),
            Settlement(five, ACK),  # once more
        ]
    )
    settled, stale, unknown = SettleStatus.SETTLED, SettleStatus.STALE, SettleStatus.UNKNOWN
    assert said == [settled, settled, settled, stale, settled, stale, unknown, settled, settled, settled]
    assert setup.tracker.counters.acked == 8
    assert setup.tracker.counters.nacked == 2
    assert (setup.state.in_flight, setup.state.waiting, setup.state.unsettled_records) == (0, 2, 2)
    assert [*setup.state.ledger.commit(with_beyond=True).beyond] == [(8, 10)]
    assert setup.state.ledger.low_watermark == 6
    assert setup.session.unsettled_bytes == 0
    assert not setup.session.leases


def test_what_one_request_settles_is_applied_in_its_order() -> None:
    asyncio.run(play())


def test_acks_for_a_lane_that_is_gone_are_stale_among_others_that_are_not() -> None:
    async def play() -> None:
        setup = Setup(2)
        other = lane_state(1)
        setup.tracker.add_lane(other)
        setup.tracker.track(other, chunk([0, 1], lane=other.lane), 0.0)
        setup.session.grant(Credit(3))
        setup.subscription._deliverer.deliver_ready()
        setup.tracker.end_lanes([setup.state])
        said = setup.settle([Settlement(lease, ACK) for lease in setup.session.leases])
        assert said == [SettleStatus.STALE, SettleStatus.STALE, SettleStatus.SETTLED]
        assert setup.tracker.counters.acked == 2
        assert other.ledger.low_watermark == 2

    asyncio.run(play())

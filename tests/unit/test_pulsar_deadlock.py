"""A broker that waits for acks that it has, or forgets some: noticed in its own figures, ended by joining anew."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.held import Held
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model import Lane
from tests.unit.pulsar_kit import MessageId

#: as Pulsar 4.2.4 told it of a consumer that kept keys from others, and of one that does so rightly
STATS = {
    "subscriptions": {
        "group": {
            "msgBacklog": 9,
            "consumers": [
                {"consumerName": "stuck", "unackedMessages": 0, "drainingHashes": [{"hash": 51404, "unackMsgs": 1}]},
                {"consumerName": "at-work", "unackedMessages": 2, "drainingHashes": [{"hash": 7, "unackMsgs": 2}]},
                {"consumerName": "free", "unackedMessages": 0, "drainingHashes": []},
                {"consumerName": "of-pulsar-3", "unackedMessages": 0},
            ],
        }
    }
}


class Told(Admin):
    async def _ask(self, *question: object, **more: object) -> Any:
        return STATS


def test_who_keeps_keys_back_without_holding_anything_is_told() -> None:
    admin = Told(PulsarOptions(url="pulsar://nowhere"), SimpleNamespace())  # type: ignore[arg-type]
    found = asyncio.run(admin.subscribed("persistent://public/default/orders", "group"))
    assert found is not None
    assert (found.backlog, found.deadlocks) == (9, {("stuck", 51404)})


def test_a_lane_is_joined_anew_if_the_same_key_is_kept_back_at_two_looks() -> None:
    async def body() -> None:
        options = PulsarOptions(url="pulsar://nowhere", subscription_type=SubscriptionType.KEY_SHARED)
        broker: Any = SimpleNamespace(options=options, library=None, admin=None)
        source = PulsarSource(broker, SourceSpec(group="group", topics=("orders",)))
        lane: Any = SimpleNamespace(lane=Lane("orders", 0), name="orders-partition-0", failed=None)
        me = source._opening.who
        for looks in ([(me, 1)], [(me, 2)], [], [(me, 2)], [("another", 2)], [("another", 2)], [(me, 3)]):
            source._end_deadlock(lane, looks)
            assert lane.failed is None
        source._end_deadlock(lane, [(me, 3), (me, 4)])
        assert "waits for acks that it has" in str(lane.failed)

    asyncio.run(body())


def test_a_lane_is_joined_anew_if_the_broker_counts_at_two_looks_what_was_acked() -> None:
    async def body() -> None:
        broker: Any = SimpleNamespace(options=PulsarOptions(url="pulsar://nowhere"), library=None, admin=None)
        source = PulsarSource(broker, SourceSpec(group="group", topics=("orders",)))
        held = Held()
        held.clear(9)
        lane: Any = SimpleNamespace(lane=Lane("orders", 0), name="orders", failed=None, held=held, exclusive=True)
        # Nothing is left; there is more than has come; and again, since between two looks all was well.
        for end, backlog in ((9, 1), (9, 0), (12, 3), (9, 1), (12, 3), (9, 1)):
            source._end_silence(lane, end, backlog)
            assert lane.failed is None
        source._end_silence(lane, 9, 1)
        assert "all of which was acked" in str(lane.failed)
        # Some of it is in hand; and what others have in hand of a shared lane is theirs.
        lane.failed = None
        held.arrive(MessageId(0, 0, 9))
        shared: Any = SimpleNamespace(lane=Lane("orders", 1), name="orders", failed=None, held=Held(), exclusive=False)
        for _ in range(3):
            source._end_silence(lane, 10, 1)
            source._end_silence(shared, 0, 1)
        assert lane.failed is shared.failed is None

    asyncio.run(body())

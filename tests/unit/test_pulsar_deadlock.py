"""A broker that holds keys back for acks that it has: noticed in its own figures, and ended by joining anew."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.model import Lane

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

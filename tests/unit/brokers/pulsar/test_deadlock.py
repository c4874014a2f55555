"""A broker that waits for acks that it has, or forgets some: noticed in its own figures, ended by joining anew."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sidecar.brokers.pulsar.admin import Admin, Subscribed
from sidecar.brokers.pulsar.held import Held
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.brokers.pulsar.suspicion import Suspicion
from sidecar.model.records import Commit, Lane
from tests.unit.brokers.pulsar.pulsar_kit import MessageId

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
    admin = Told(PulsarOptions(url="pulsar://nowhere"))
    found = asyncio.run(admin.subscribed("persistent://public/default/orders", "group"))
    assert found is not None
    assert (found.backlog, found.deadlocks) == (9, {("stuck", 51404)})


@dataclass
class Suspect:
    """A lane."""

    lane: Lane = Lane("orders", 0)
    name: str = "orders-partition-0"
    held: Held = field(default_factory=Held)
    exclusive: bool = True


def keeping_back(*deadlocks: tuple[str, int]) -> Subscribed:
    return Subscribed(0, has_consumers=True, properties={}, deadlocks=frozenset(deadlocks))


def counting(backlog: int) -> Subscribed:
    return Subscribed(backlog, has_consumers=True, properties={})


def test_a_lane_is_joined_anew_if_the_same_key_is_kept_back_at_two_looks() -> None:
    suspicion, lane = Suspicion("me"), Suspect(exclusive=False)
    for looks in ([("me", 1)], [("me", 2)], [], [("me", 2)], [("another", 2)], [("another", 2)], [("me", 3)]):
        assert not suspicion.look(lane, keeping_back(*looks), 0)
    assert "waits for acks that it has" in suspicion.look(lane, keeping_back(("me", 3), ("me", 4)), 0)


def test_a_lane_is_joined_anew_if_the_broker_counts_at_two_looks_what_was_acked() -> None:
    suspicion, lane = Suspicion("me"), Suspect()
    lane.held.clear(9)
    # Nothing is left; there is more than has come; and again, since between two looks all was well.
    for end, backlog in ((9, 1), (9, 0), (12, 3), (9, 1), (12, 3), (9, 1)):
        assert not suspicion.look(lane, counting(backlog), end)
    assert "all of which was acked" in suspicion.look(lane, counting(1), 9)
    # Some of it is in hand; and what others have in hand of a shared lane is theirs.
    lane.held.arrive(MessageId(0, 0, 9))
    shared = Suspect(Lane("orders", 1), exclusive=False)
    for _ in range(3):
        assert not suspicion.look(lane, counting(1), 10)
        assert not suspicion.look(shared, counting(1), 0)


def test_a_lane_that_goes_on_is_not_silent_though_acks_were_on_their_way_at_two_looks() -> None:
    suspicion, lane = Suspicion("me"), Suspect()
    for entry in range(5):
        position = lane.held.arrive(MessageId(4, entry))
        lane.held.take(Commit(position + 1))
        # The library has not sent the ack yet, and the broker counts the one that came last.
        assert not suspicion.look(lane, counting(1), position + 1)
    assert "all of which was acked" in suspicion.look(lane, counting(1), position + 1)


def test_a_lane_is_not_joined_anew_again_and_again_for_what_the_library_keeps_to_itself() -> None:
    suspicion, lane = Suspicion("me"), Suspect()
    lane.held.clear(9)
    assert not suspicion.look(lane, counting(2), 9)
    assert suspicion.look(lane, counting(2), 9)
    for _ in range(3):
        assert not suspicion.look(lane, counting(2), 9)
    # One of them has come; and then there is another one.
    for backlog in (1, 1, 2):
        assert not suspicion.look(lane, counting(backlog), 9)
    assert suspicion.look(lane, counting(2), 9)

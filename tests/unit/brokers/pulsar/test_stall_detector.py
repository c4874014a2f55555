"""Lanes that stop: what the broker's figures show at two checks in a row, and what they must not be mistaken for."""

from dataclasses import dataclass, field

from sidecar.brokers.pulsar.admin import SubscriptionStats
from sidecar.brokers.pulsar.positions import pack
from sidecar.brokers.pulsar.stall_detector import StallDetector, UndeliveredMessages
from sidecar.brokers.pulsar.unacked import UnackedMessages
from sidecar.model.records import Commit, Lane
from tests.unit.brokers.pulsar.pulsar_kit import MessageId


@dataclass
class FakeLane:
    lane: Lane = Lane("orders", 0)
    name: str = "orders-partition-0"
    unacked: UnackedMessages = field(default_factory=UnackedMessages)
    exclusive: bool = True


def holding_back(*deadlocks: tuple[str, int]) -> SubscriptionStats:
    return SubscriptionStats(0, has_consumers=True, properties={}, deadlocks=frozenset(deadlocks))


def counting(backlog: int) -> SubscriptionStats:
    return SubscriptionStats(backlog, has_consumers=True, properties={})


def test_a_key_that_is_held_back_for_this_sidecar_at_two_checks_is_a_stall() -> None:
    detector, lane = StallDetector("me"), FakeLane(exclusive=False)
    for found in ([("me", 1)], [("me", 2)], [], [("me", 2)], [("another", 2)], [("another", 2)], [("me", 3)]):
        assert not detector.check(lane, holding_back(*found), 0)
    assert "waits for acks that it has" in detector.check(lane, holding_back(("me", 3), ("me", 4)), 0)


def test_a_backlog_at_two_checks_although_everything_was_acked_is_a_stall() -> None:
    detector, lane = StallDetector("me"), FakeLane()
    lane.unacked.reset(9)
    # No backlog in between; then more in the lane than has arrived; then the first check of two.
    for end, backlog in ((9, 1), (9, 0), (12, 3), (9, 1), (12, 3), (9, 1)):
        assert not detector.check(lane, counting(backlog), end)
    assert "all of which was acked" in detector.check(lane, counting(1), 9)
    # No stall: something is unacked here, or the lane is shared and something may be unacked elsewhere.
    lane.unacked.add(MessageId(0, 0, 9))
    shared = FakeLane(Lane("orders", 1), exclusive=False)
    for _ in range(3):
        assert not detector.check(lane, counting(1), 10)
        assert not detector.check(shared, counting(1), 0)


def test_a_busy_lane_whose_last_acks_are_not_sent_yet_at_every_check_is_no_stall() -> None:
    detector, lane = StallDetector("me"), FakeLane()
    for entry in range(5):
        position = lane.unacked.add(MessageId(4, entry))
        lane.unacked.take(Commit(position + 1))
        # The library has not sent the ack yet, so the broker counts the last message as backlog.
        assert not detector.check(lane, counting(1), position + 1)
    assert "all of which was acked" in detector.check(lane, counting(1), position + 1)


def test_messages_that_a_new_consumer_did_not_bring_are_no_stall_again() -> None:
    detector, lane = StallDetector("me"), FakeLane()
    lane.unacked.reset(9)
    assert not detector.check(lane, counting(2), 9)
    assert detector.check(lane, counting(2), 9)
    for _ in range(3):
        assert not detector.check(lane, counting(2), 9)
    # One of them comes; then there is another one.
    for backlog in (1, 1, 2):
        assert not detector.check(lane, counting(backlog), 9)
    assert detector.check(lane, counting(2), 9)


def test_a_gap_counts_as_undelivered_only_when_what_comes_after_it_is_acked() -> None:
    undelivered, lane = UndeliveredMessages(), FakeLane(unacked=UnackedMessages(ascending=True))
    lane.unacked.reset(pack(4, 0))
    lane.unacked.add(MessageId(4, 0))
    lane.unacked.take(Commit(lane.unacked.next))
    # A new ledger: the broker waits for its first entry, a batch of which one message is unacked.
    lane.unacked.add(MessageId(7, 0, 0))
    lane.unacked.add(MessageId(7, 0, 1))
    lane.unacked.take(Commit(pack(7, 0, 1)))
    for _ in range(3):
        undelivered.check(lane, pack(4, 1))
    assert undelivered.trouble([lane.lane]) == ""
    lane.unacked.take(Commit(lane.unacked.next))
    undelivered.check(lane, pack(4, 1))
    undelivered.check(lane, pack(4, 1))
    assert "4:1" in undelivered.trouble([lane.lane])
    assert undelivered.trouble([]) == ""

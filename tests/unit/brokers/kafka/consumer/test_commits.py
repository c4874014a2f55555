"""Which response belongs to which commit, when commits are sent within a revoke and answered after it."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sidecar.brokers.kafka.consumer import commits
from sidecar.brokers.kafka.consumer.commits import CommitRequest, Commits
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane

KEPT, LEAVING, OTHER = Lane("orders", 0), Lane("orders", 1), Lane("bills", 0)
UNKNOWN: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
REFUSED: Any = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Sender:
    """Commits, with what was sent and the results."""

    def __init__(self, phase: Phase = Phase.ACTIVE) -> None:
        readers = {lane: LaneReader(lane, phase) for lane in (KEPT, LEAVING, OTHER)}
        self.restarted: list[Lane] = []
        self.checks: list[tuple[CommitRequest, list[Lane]]] = []
        self.commits = Commits(
            readers, self.restarted.extend, lambda request, lanes: self.checks.append((request, [*lanes]))
        )
        self.readers = readers
        me: Any = self
        self.commits.consumer = me
        self.sent: list[dict[Lane, int]] = []
        self.results: dict[str, BrokerError | None] = {}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.sent.append({Lane(each.topic, each.partition): each.offset for each in offsets})

    def submit(self, name: str, offsets: dict[Lane, tuple[int, str]], *, pins: bool = False) -> CommitRequest:
        def on_done(error: BrokerError | None) -> None:
            self.results[name] = error

        request = CommitRequest(offsets, on_done, lambda: False, pins)
        self.commits.submit(request)
        return request

    def confirm(self, request: CommitRequest) -> None:
        self.commits.confirm(request, request.sent)

    def respond(self, positions: dict[Lane, int], error: Any = None) -> None:
        self.commits.on_response(error, [TopicPartition(*lane, position) for lane, position in positions.items()])


def within_a_revoke(sender: Sender) -> None:
    """One commit is sent and confirmed by a query; its response waits for the next poll. The next commit is sent."""
    first = sender.submit("first", {LEAVING: (100, "acks")})
    sender.commits.send_due_within_poll()
    sender.confirm(first)
    sender.submit("second", {LEAVING: (100, "more acks"), KEPT: (900, "")})
    sender.commits.send_due_within_poll()


def test_the_response_to_a_confirmed_commit_is_not_taken_for_that_to_the_next() -> None:
    sender = Sender()
    within_a_revoke(sender)
    assert sender.results == {"first": None}
    sender.respond({LEAVING: 100})
    assert sender.results == {"first": None}
    sender.respond({LEAVING: 100, KEPT: 900}, KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
    assert isinstance(sender.results["second"], Unavailable)


def test_of_two_equal_commits_the_older_one_is_answered_first() -> None:
    sender = Sender()
    first = sender.submit("first", {KEPT: (100, "acks")})
    sender.commits.send_due_within_poll()
    sender.confirm(first)
    sender.submit("second", {KEPT: (100, "more acks")})
    sender.commits.send_due_within_poll()
    sender.respond({KEPT: 100})
    assert sender.results == {"first": None}
    sender.respond({KEPT: 100})
    assert sender.results == {"first": None, "second": None}


def test_between_polls_nothing_is_sent_before_all_responses_have_come() -> None:
    """The library may still retry an earlier commit, which could arrive after a later one."""
    sender = Sender()
    first = sender.submit("first", {LEAVING: (100, "")})
    sender.commits.send_due_within_poll()
    sender.confirm(first)
    sender.submit("second", {KEPT: (900, "")})
    sender.commits.send_due()
    assert sender.sent == [{LEAVING: 100}]
    sender.respond({LEAVING: 100})
    sender.commits.send_due()
    assert sender.sent == [{LEAVING: 100}, {KEPT: 900}]


def test_a_response_that_never_comes_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender()
    sender.submit("first", {LEAVING: (100, "")})
    sender.commits.send_due()
    sender.submit("second", {KEPT: (900, "")})
    sender.commits.send_due()
    monkeypatch.setattr(commits, "_RESPONSE_TIMEOUT", -1.0)
    sender.commits.send_due()
    assert isinstance(sender.results["first"], Unavailable)
    assert sender.sent == [{LEAVING: 100}, {KEPT: 900}]


def test_a_response_for_other_lanes_belongs_to_another_commit() -> None:
    sender = Sender()
    sender.submit("only", {LEAVING: (100, ""), KEPT: (900, "")})
    sender.commits.send_due()
    sender.respond({KEPT: 900})
    assert sender.results == {}
    sender.respond({LEAVING: 100, KEPT: 900})
    assert sender.results == {"only": None}


def test_a_commit_that_is_sent_topic_by_topic_is_confirmed_topic_by_topic() -> None:
    sender = Sender()
    request = sender.submit("only", {KEPT: (900, ""), OTHER: (7, "")})
    sender.commits.send_due()
    sender.respond({KEPT: 900, OTHER: 7}, UNKNOWN)
    sender.commits.send_due()
    sent = request.sent
    for _ in range(2):
        # Two queries may have seen the same.
        sender.commits.confirm(request, sent)
    assert sender.results == {}
    sender.commits.send_due_within_poll()
    sender.confirm(request)
    assert sender.sent == [{KEPT: 900, OTHER: 7}, {KEPT: 900}, {OTHER: 7}]
    assert sender.results == {"only": None}


@pytest.mark.parametrize("error", [UNKNOWN, REFUSED])
def test_a_topic_that_is_gone_or_refused_does_not_hold_up_the_others(error: Any) -> None:
    sender = Sender()
    sender.submit("only", {KEPT: (900, ""), OTHER: (7, "")})
    sender.commits.send_due()
    sender.respond({KEPT: 900, OTHER: 7}, error)
    sender.commits.send_due()
    sender.respond({KEPT: 900})
    sender.commits.send_due()
    sender.respond({OTHER: 7}, error)
    result = sender.results["only"]
    assert isinstance(result, LaneGone)
    assert result.lanes == {OTHER}
    assert sender.restarted == [OTHER]


def test_the_first_position_of_a_lane_that_kafka_does_not_know_is_stored_again_by_the_caller() -> None:
    sender = Sender(Phase.STARTING)
    sender.submit("only", {KEPT: (3, "")}, pins=True)
    sender.commits.send_due()
    sender.respond({KEPT: 3}, UNKNOWN)
    assert isinstance(sender.results["only"], LaneGone)
    assert sender.restarted == []


def leaving(sender: Sender) -> CommitRequest:
    """A commit of two lanes, of which one is being revoked, waits for what Kafka has of that one."""
    sender.readers[LEAVING].phase = Phase.REVOKED
    request = sender.submit("last", {LEAVING: (100, ""), KEPT: (900, "")})
    for _ in range(2):
        sender.commits.send_due_within_poll()
    assert sender.checks == [(request, [LEAVING])]
    assert sender.sent == []
    return request


def test_the_last_commit_of_a_lane_waits_until_it_is_known_that_kafka_has_no_later_position() -> None:
    sender = Sender()
    sender.commits.checked(leaving(sender), {})
    sender.commits.send_due_within_poll()
    assert sender.sent == [{LEAVING: 100, KEPT: 900}]


def test_a_lane_of_which_kafka_has_a_later_position_is_lost_and_the_others_are_committed() -> None:
    sender = Sender()
    request = leaving(sender)
    sender.commits.checked(request, {LEAVING: 101})
    sender.commits.send_due_within_poll()
    sender.confirm(request)
    assert sender.sent == [{KEPT: 900}]
    result = sender.results["last"]
    assert isinstance(result, LaneGone)
    assert result.lanes == {LEAVING}
    assert LEAVING not in sender.readers


def test_nothing_is_committed_of_a_lane_that_left_before_it_was_known_what_kafka_has() -> None:
    sender = Sender()
    request = leaving(sender)
    del sender.readers[LEAVING]
    sender.commits.send_due()
    sender.commits.checked(request, {})
    assert sender.sent == [{KEPT: 900}]


def test_a_lane_that_was_assigned_again_is_not_lost_by_the_answer_for_its_earlier_assignment() -> None:
    sender = Sender()
    request = leaving(sender)
    again = sender.readers[LEAVING] = LaneReader(LEAVING, Phase.ACTIVE)
    sender.commits.checked(request, {LEAVING: 101})
    assert sender.readers[LEAVING] is again


def refused(sender: Sender) -> CommitRequest:
    """A commit between two polls that Kafka did not accept as that of a member waits for what Kafka has."""
    request = sender.submit("only", {LEAVING: (100, ""), KEPT: (900, "")})
    sender.commits.send_due()
    sender.respond({LEAVING: 100, KEPT: 900}, KafkaError(KafkaError.STALE_MEMBER_EPOCH))
    request.due = 0.0
    sender.commits.send_due()
    assert sender.checks == [(request, [LEAVING, KEPT])]
    assert len(sender.sent) == 1
    return request


def test_a_commit_that_was_refused_is_sent_again_if_kafka_has_no_later_position() -> None:
    sender = Sender()
    sender.commits.checked(refused(sender), {})
    sender.commits.send_due()
    sender.respond({LEAVING: 100, KEPT: 900})
    assert sender.sent == [{LEAVING: 100, KEPT: 900}] * 2
    assert sender.results == {"only": None}
    assert sender.restarted == []


@pytest.mark.parametrize(("stored", "lost"), [(100, []), (101, [KEPT])])
def test_a_seek_back_that_was_refused_is_not_stopped_by_what_we_have_committed(stored: int, lost: list[Lane]) -> None:
    sender = Sender()
    sender.submit("before", {KEPT: (100, "")})
    sender.commits.send_due()
    sender.respond({KEPT: 100})
    seek = sender.submit("seek", {KEPT: (10, "")})
    sender.commits.send_due()
    sender.respond({KEPT: 10}, KafkaError(KafkaError.STALE_MEMBER_EPOCH))
    seek.due = 0.0
    sender.commits.send_due()
    sender.commits.checked(seek, {KEPT: stored})
    sender.commits.send_due()
    assert sender.restarted == lost
    assert sender.sent[2:] == ([] if lost else [{KEPT: 10}])


def test_a_lane_that_another_sidecar_had_while_commits_were_refused_starts_again_where_that_one_came_to() -> None:
    sender = Sender()
    sender.commits.checked(refused(sender), {LEAVING: 101})
    assert sender.restarted == [LEAVING]
    sender.commits.send_due()
    sender.respond({KEPT: 900})
    assert sender.sent[1:] == [{KEPT: 900}]
    result = sender.results["only"]
    assert isinstance(result, LaneGone)
    assert result.lanes == {LEAVING}

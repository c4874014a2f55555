"""Which answer is whose, when commits are sent within a revoke and answered after it."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sidecar.brokers.kafka.consumer import commits
from sidecar.brokers.kafka.consumer.commits import Commits, Request
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane

KEPT, LEAVING, OTHER = Lane("orders", 0), Lane("orders", 1), Lane("bills", 0)
UNKNOWN: Any = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
REFUSED: Any = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Desk:
    """Commits, what was sent, and what was answered."""

    def __init__(self) -> None:
        readings = {lane: Reading(lane, phase=Phase.ACTIVE) for lane in (KEPT, LEAVING, OTHER)}
        self.vanished: list[Lane] = []
        self.commits = Commits(readings, self.vanished.extend)
        me: Any = self
        self.commits.consumer = me
        self.sent: list[dict[Lane, int]] = []
        self.answers: dict[str, BrokerError | None] = {}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.sent.append({Lane(each.topic, each.partition): each.offset for each in offsets})

    def submit(self, name: str, offsets: dict[Lane, tuple[int, str]]) -> Request:
        def answer(error: BrokerError | None) -> None:
            self.answers[name] = error

        request = Request(offsets, answer, lambda: False)
        self.commits.submit(request)
        return request

    def confirm(self, request: Request) -> None:
        self.commits.confirm(request, request.told)

    def answered(self, positions: dict[Lane, int], error: Any = None) -> None:
        self.commits.answered(error, [TopicPartition(*lane, position) for lane, position in positions.items()])


def within_a_revoke(desk: Desk) -> None:
    """One commit is sent and seen to have arrived; its answer waits for the next poll. The next one is sent."""
    first = desk.submit("first", {LEAVING: (100, "acks")})
    desk.commits.serve_within_poll()
    desk.confirm(first)
    desk.submit("second", {LEAVING: (100, "more acks"), KEPT: (900, "")})
    desk.commits.serve_within_poll()


def test_the_answer_of_a_commit_that_was_confirmed_is_not_taken_for_that_of_the_next() -> None:
    desk = Desk()
    within_a_revoke(desk)
    assert desk.answers == {"first": None}
    desk.answered({LEAVING: 100})
    assert desk.answers == {"first": None}
    desk.answered({LEAVING: 100, KEPT: 900}, KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
    assert isinstance(desk.answers["second"], Unavailable)


def test_of_two_commits_that_look_alike_the_older_one_is_answered_first() -> None:
    desk = Desk()
    first = desk.submit("first", {KEPT: (100, "acks")})
    desk.commits.serve_within_poll()
    desk.confirm(first)
    desk.submit("second", {KEPT: (100, "more acks")})
    desk.commits.serve_within_poll()
    desk.answered({KEPT: 100})
    assert desk.answers == {"first": None}
    desk.answered({KEPT: 100})
    assert desk.answers == {"first": None, "second": None}


def test_between_polls_nothing_is_sent_before_all_answers_are_here() -> None:
    """The library may be trying an earlier one still, which could arrive after a later one."""
    desk = Desk()
    first = desk.submit("first", {LEAVING: (100, "")})
    desk.commits.serve_within_poll()
    desk.confirm(first)
    desk.submit("second", {KEPT: (900, "")})
    desk.commits.serve()
    assert desk.sent == [{LEAVING: 100}]
    desk.answered({LEAVING: 100})
    desk.commits.serve()
    assert desk.sent == [{LEAVING: 100}, {KEPT: 900}]


def test_an_answer_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.submit("first", {LEAVING: (100, "")})
    desk.commits.serve()
    desk.submit("second", {KEPT: (900, "")})
    desk.commits.serve()
    monkeypatch.setattr(commits, "_ABANDONED", -1.0)
    desk.commits.serve()
    assert isinstance(desk.answers["first"], Unavailable)
    assert desk.sent == [{LEAVING: 100}, {KEPT: 900}]


def test_an_answer_of_other_lanes_is_for_another_commit() -> None:
    desk = Desk()
    desk.submit("only", {LEAVING: (100, ""), KEPT: (900, "")})
    desk.commits.serve()
    desk.answered({KEPT: 900})
    assert desk.answers == {}
    desk.answered({LEAVING: 100, KEPT: 900})
    assert desk.answers == {"only": None}


def test_what_is_sent_topic_by_topic_is_confirmed_topic_by_topic() -> None:
    desk = Desk()
    request = desk.submit("only", {KEPT: (900, ""), OTHER: (7, "")})
    desk.commits.serve()
    desk.answered({KEPT: 900, OTHER: 7}, UNKNOWN)
    desk.commits.serve()
    told = request.told
    for _ in range(2):
        # Two may have looked, and seen the same.
        desk.commits.confirm(request, told)
    assert desk.answers == {}
    desk.commits.serve_within_poll()
    desk.confirm(request)
    assert desk.sent == [{KEPT: 900, OTHER: 7}, {KEPT: 900}, {OTHER: 7}]
    assert desk.answers == {"only": None}


@pytest.mark.parametrize("error", [UNKNOWN, REFUSED])
def test_a_topic_that_is_gone_or_refused_does_not_hold_up_the_others(error: Any) -> None:
    desk = Desk()
    desk.submit("only", {KEPT: (900, ""), OTHER: (7, "")})
    desk.commits.serve()
    desk.answered({KEPT: 900, OTHER: 7}, error)
    desk.commits.serve()
    desk.answered({KEPT: 900})
    desk.commits.serve()
    desk.answered({OTHER: 7}, error)
    answer = desk.answers["only"]
    assert isinstance(answer, LaneGone)
    assert answer.lanes == {OTHER}
    assert desk.vanished == [OTHER]

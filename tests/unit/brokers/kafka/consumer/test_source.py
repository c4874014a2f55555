"""The two groups of a subscription: neither is held up by the other."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka.consumer.source import KafkaSource
from sidecar.brokers.kafka.library_logs import Reasons
from sidecar.model.errors import BrokerError, LaneGone, Refused, Unavailable
from sidecar.model.records import Commit, Lane

MAIN, RETRY = Lane("orders", 0), Lane("billing.offramp.retry", 0)


class Part:
    """Stands in for a group, and answers every commit alike."""

    def __init__(self, answer: BrokerError | None = None) -> None:
        self._answer = answer
        self.committed: list[Lane] = []
        self.anew: list[Lane] = []

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        if self._answer is not None:
            raise self._answer
        self.committed += commits

    def begin_anew(self, lanes: Mapping[Lane, Commit]) -> None:
        self.anew += lanes


def commit(main: Part, retry: Part) -> None:
    async def body() -> None:
        broker: Any = type("Broker", (), {"reasons": Reasons(), "ping": None})
        groups: list[Any] = [main, retry]
        source = KafkaSource(broker, SourceSpec("billing", ("orders",), own_topics={RETRY.topic: 1}))
        source._groups, source._main = groups, groups[0]
        await source.commit({MAIN: Commit(5), RETRY: Commit(7)})

    asyncio.run(body())


def test_a_retry_group_that_is_refused_does_not_hold_up_the_work() -> None:
    main, retry = Part(), Part(Refused("an ACL is missing"))
    with pytest.raises(LaneGone) as caught:
        commit(main, retry)
    assert (main.committed, retry.anew) == ([MAIN], [RETRY])
    assert caught.value.lanes == {RETRY}, "nobody takes them for committed"


def test_one_that_is_away_for_now_is_tried_again() -> None:
    main, retry = Part(), Part(Unavailable("no answer"))
    with pytest.raises(Unavailable):
        commit(main, retry)
    assert retry.anew == []


def test_a_group_that_is_refused_is_told() -> None:
    main, retry = Part(Refused("an ACL is missing")), Part()
    with pytest.raises(Refused):
        commit(main, retry)
    assert main.anew == []


def test_lanes_that_are_gone_are_told_of_both() -> None:
    with pytest.raises(LaneGone) as caught:
        commit(Part(LaneGone([MAIN])), Part(LaneGone([RETRY])))
    assert caught.value.lanes == {MAIN, RETRY}

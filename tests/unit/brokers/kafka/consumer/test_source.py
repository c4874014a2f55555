"""The two groups of a subscription: neither holds up the other."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka.consumer.source import KafkaSource
from sidecar.model.errors import BrokerError, LaneGone, Refused, Unavailable
from sidecar.model.records import Commit, Lane

MAIN, RETRY = Lane("orders", 0), Lane("billing.offramp.retry", 0)


class Member:
    """Stands in for the member of a group: all commits have the same result."""

    def __init__(self, result: BrokerError | None = None) -> None:
        self._result = result
        self.committed: list[Lane] = []
        self.restarted: list[Lane] = []

    async def commit(self, commits: Mapping[Lane, Commit]) -> None:
        if self._result is not None:
            raise self._result
        self.committed += commits

    def restart_lanes(self, lanes: Mapping[Lane, Commit]) -> None:
        self.restarted += lanes


def commit(main: Member, retry: Member) -> None:
    async def body() -> None:
        broker: Any = SimpleNamespace(clients=SimpleNamespace(recent_errors=None), ping=None)
        members: list[Any] = [main, retry]
        source = KafkaSource(broker, SourceSpec("billing", ("orders",), own_topics={RETRY.topic: 1}))
        source._members, source._main = members, members[0]
        await source.commit({MAIN: Commit(5), RETRY: Commit(7)})

    asyncio.run(body())


def test_a_retry_group_that_is_refused_does_not_hold_up_the_main_group() -> None:
    main, retry = Member(), Member(Refused("an ACL is missing"))
    with pytest.raises(LaneGone) as caught:
        commit(main, retry)
    assert (main.committed, retry.restarted) == ([MAIN], [RETRY])
    assert caught.value.lanes == {RETRY}, "they do not count as committed"


def test_a_retry_group_that_is_unavailable_is_tried_again() -> None:
    main, retry = Member(), Member(Unavailable("no answer"))
    with pytest.raises(Unavailable):
        commit(main, retry)
    assert retry.restarted == []


def test_a_refused_main_group_is_reported() -> None:
    main, retry = Member(Refused("an ACL is missing")), Member()
    with pytest.raises(Refused):
        commit(main, retry)
    assert main.restarted == []


def test_lanes_that_are_gone_are_reported_for_both() -> None:
    with pytest.raises(LaneGone) as caught:
        commit(Member(LaneGone([MAIN])), Member(LaneGone([RETRY])))
    assert caught.value.lanes == {MAIN, RETRY}

"""What a member of a group asks of its thread."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka.consumer.commits import Request
from sidecar.brokers.kafka.consumer.group_member import Group
from sidecar.brokers.kafka.library_logs import Reasons
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)


class Thread:
    """Stands in for a member: answers commits as it is told to, and moves lanes."""

    def __init__(self, answer: BrokerError | None) -> None:
        self.committed: dict[Lane, int] = {}
        self.moved: dict[Lane, int] = {}
        self._answer = answer

    def commit(self, request: Request) -> None:
        self.committed |= {lane: position for lane, (position, _) in request.offsets.items()}
        request.answer(self._answer)

    def move(self, positions: Mapping[Lane, int], moved: Callable[[], None]) -> None:
        self.moved |= positions
        moved()


async def seeking(thread: Any) -> Mapping[Lane, int]:
    broker: Any = type("Broker", (), {"reasons": None, "ping": None})
    group = Group(broker, SourceSpec("billing", ("orders",)), Shelf(lambda: None), asyncio.Event())
    group._loop, group._member = asyncio.get_running_loop(), thread
    locating: Any = type("Locating", (), {"metadata": lambda _, lane, commit: ""})()
    group._locating = locating
    return await group._move({ONE: 70, OTHER: 80})


def test_a_seek_moves_lanes_once_kafka_has_their_positions() -> None:
    thread = Thread(None)
    assert asyncio.run(seeking(thread)) == thread.committed == thread.moved == {ONE: 70, OTHER: 80}


def test_a_seek_moves_the_lanes_that_are_left_when_others_go_away_meanwhile() -> None:
    """Kafka has their positions already: they would start there in another life."""
    thread = Thread(LaneGone([OTHER]))
    with pytest.raises(LaneGone) as caught:
        asyncio.run(seeking(thread))
    assert caught.value.lanes == {OTHER}
    assert thread.moved == {ONE: 70}


@pytest.mark.parametrize("error", [LaneGone([ONE, OTHER]), Unavailable("no answer")])
def test_a_seek_that_kafka_did_not_take_moves_nothing(error: BrokerError) -> None:
    thread = Thread(error)
    with pytest.raises(type(error)):
        asyncio.run(seeking(thread))
    assert thread.moved == {}


@pytest.mark.parametrize(
    ("code", "told"),
    [(KafkaError._TRANSPORT, 0), (KafkaError._RESOLVE, 0), (KafkaError._ALL_BROKERS_DOWN, 1)],
)
def test_nobody_is_woken_for_a_broker_that_is_away(code: int, told: int) -> None:
    """While all are, the library says so of each, several times a second."""

    async def body() -> None:
        broker: Any = type("Broker", (), {"reasons": Reasons(), "ping": None})
        group = Group(broker, SourceSpec("billing", ("orders",)), Shelf(lambda: None), asyncio.Event())
        heard: list[Callable[..., object]] = []
        group._call = lambda function, *_: heard.append(function)  # type: ignore[method-assign]
        group.failed(KafkaError(code), None)
        assert len(heard) == told
        latest = broker.reasons.latest()
        assert latest is not None
        assert latest.code() == code

    asyncio.run(body())

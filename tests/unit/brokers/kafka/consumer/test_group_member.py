"""What the member of a group asks of its poll thread."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.group_member import GroupMember
from sidecar.brokers.kafka.library_logs import RecentErrors
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane
from tests.event_loop import on_event_loop

ONE, OTHER = Lane("orders", 0), Lane("orders", 1)


class Thread:
    """Stands in for a poll thread: all commits have the same result, and lanes are moved."""

    def __init__(self, result: BrokerError | None) -> None:
        self.committed: dict[Lane, int] = {}
        self.moved: dict[Lane, int] = {}
        self._result = result

    def commit(self, request: CommitRequest) -> None:
        self.committed |= {lane: position for lane, (position, _) in request.offsets.items()}
        request.on_done(self._result)

    def move(self, positions: Mapping[Lane, int], on_moved: Callable[[], None]) -> None:
        self.moved |= positions
        on_moved()


async def seeking(thread: Any) -> Mapping[Lane, int]:
    broker: Any = SimpleNamespace(clients=SimpleNamespace(recent_errors=None), ping=None)
    member = GroupMember(broker, SourceSpec("billing", ("orders",)), PollBuffer(lambda: None), asyncio.Event())
    member._loop, member._poll_thread = asyncio.get_running_loop(), thread
    lookup: Any = SimpleNamespace(metadata=lambda lane, commit: "")
    member._lookup = lookup
    return await member._move({ONE: 70, OTHER: 80})


def test_a_seek_moves_lanes_once_kafka_has_their_positions() -> None:
    thread = Thread(None)
    assert asyncio.run(seeking(thread)) == thread.committed == thread.moved == {ONE: 70, OTHER: 80}


def test_a_seek_moves_the_remaining_lanes_when_others_move_away_meanwhile() -> None:
    """Kafka has their positions already: they would start there after a restart."""
    thread = Thread(LaneGone([OTHER]))
    with pytest.raises(LaneGone) as caught:
        asyncio.run(seeking(thread))
    assert caught.value.lanes == {OTHER}
    assert thread.moved == {ONE: 70}


@pytest.mark.parametrize("error", [LaneGone([ONE, OTHER]), Unavailable("no answer")])
def test_a_seek_that_kafka_did_not_store_moves_nothing(error: BrokerError) -> None:
    thread = Thread(error)
    with pytest.raises(type(error)):
        asyncio.run(seeking(thread))
    assert thread.moved == {}


@pytest.mark.parametrize(
    ("code", "count"),
    [(KafkaError._TRANSPORT, 0), (KafkaError._RESOLVE, 0), (KafkaError._ALL_BROKERS_DOWN, 1)],
)
@on_event_loop
async def test_the_event_loop_is_not_woken_for_one_broker_that_is_away(code: int, count: int) -> None:
    """While all are away, the library reports each of them several times a second."""
    broker: Any = SimpleNamespace(clients=SimpleNamespace(recent_errors=RecentErrors()), ping=None)
    member = GroupMember(broker, SourceSpec("billing", ("orders",)), PollBuffer(lambda: None), asyncio.Event())
    calls: list[Callable[..., object]] = []
    member._call = lambda function, *_: calls.append(function)  # type: ignore[method-assign]
    member.failed(KafkaError(code), None)
    assert len(calls) == count
    latest = broker.clients.recent_errors.latest()
    assert latest is not None
    assert latest.code() == code

"""Problems of Kafka, and when they are over."""

import asyncio
from collections.abc import Callable

from confluent_kafka import KafkaError

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.consumer.health import Health
from sidecar.brokers.kafka.library_logs import RecentErrors
from sidecar.model.errors import Refused, Unavailable
from tests.event_loop import on_event_loop

K = KafkaError


class Reports:
    """A `Health`, and what it reports."""

    def __init__(self, over: Callable[[], None] = lambda: None) -> None:
        self.reported: list[Trouble] = []
        self.answers = False
        self.health = Health("billing", RecentErrors(), self._report, self._ping)
        self._over = over

    def _report(self, trouble: Trouble) -> None:
        self.reported.append(trouble)
        if not trouble.text:
            self._over()

    async def _ping(self) -> None:
        if not self.answers:
            raise Unavailable("down")

    def error(self, code: int, topic: str | None = None) -> None:
        self.health.on_error(KafkaError(code), topic)

    @property
    def troubles(self) -> set[str]:
        """Kinds of problems that were reported and are not over."""
        return {kind for kind, text in {each.kind: each.text for each in self.reported}.items() if text}


@on_event_loop
async def test_a_group_that_is_refused_fails_until_lanes_are_assigned() -> None:
    one = Reports()
    one.error(K.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(one.health.failure, Refused)
    one.health.assigned(["orders"])
    assert one.health.failure is None
    assert not one.troubles


@on_event_loop
async def test_a_topic_that_is_refused_does_not_fail_the_others() -> None:
    one = Reports()
    one.error(K.TOPIC_AUTHORIZATION_FAILED, "orders")
    assert one.health.failure is None
    assert one.troubles == {"topic orders"}
    one.health.assigned(["returns"])
    assert one.troubles == {"topic orders"}
    one.health.assigned(["orders"])
    assert not one.troubles


@on_event_loop
async def test_one_broker_that_is_away_is_no_trouble_but_all_of_them_are() -> None:
    one = Reports()
    one.error(K._TRANSPORT)
    assert not one.troubles
    one.error(K._ALL_BROKERS_DOWN)
    assert one.troubles == {"broker"}
    assert one.health.failure is None
    assert "no broker can be reached" in one.health.connection


@on_event_loop
async def test_an_error_that_is_repeated_is_reported_once() -> None:
    one = Reports()
    for _ in range(5):
        one.error(K._ALL_BROKERS_DOWN)
    assert len(one.reported) == 1


@on_event_loop
async def test_the_connection_works_again_when_the_broker_answers() -> None:
    over = asyncio.Event()
    one = Reports(over.set)
    one.error(K._AUTHENTICATION)
    one.health.topic_missing("orders")
    assert isinstance(one.health.failure, Refused)
    watching = asyncio.create_task(one.health.watch())
    one.answers = True
    async with asyncio.timeout(10.0):
        await over.wait()
    watching.cancel()
    assert one.health.failure is None
    # A missing topic is reported once; silence does not mean that it exists.
    assert one.troubles == {"topic orders"}

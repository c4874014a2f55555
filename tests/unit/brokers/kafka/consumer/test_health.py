"""What is wrong with Kafka, and when it is over."""

import asyncio
from collections.abc import Callable

from confluent_kafka import KafkaError

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.consumer.health import Health
from sidecar.brokers.kafka.library_logs import Reasons
from sidecar.model.errors import Refused, Unavailable

K = KafkaError


class Patient:
    """A health, and what it tells."""

    def __init__(self, over: Callable[[], None] = lambda: None) -> None:
        self.told: list[Trouble] = []
        self.answers = False
        self.health = Health("billing", Reasons(), self._tell, self._ping)
        self._over = over

    def _tell(self, trouble: Trouble) -> None:
        self.told.append(trouble)
        if not trouble.text:
            self._over()

    async def _ping(self) -> None:
        if not self.answers:
            raise Unavailable("down")

    def hears(self, code: int, topic: str | None = None) -> None:
        self.health.heard(KafkaError(code), topic)

    @property
    def troubles(self) -> set[str]:
        """What is told and not over."""
        return {kind for kind, text in {each.kind: each.text for each in self.told}.items() if text}


def play(body: Callable[[Patient], None]) -> None:
    async def run() -> None:
        body(Patient())

    asyncio.run(run())


def test_a_group_that_is_refused_fails_until_lanes_are_assigned() -> None:
    def body(one: Patient) -> None:
        one.hears(K.GROUP_AUTHORIZATION_FAILED)
        assert isinstance(one.health.failure, Refused)
        one.health.assigned(["orders"])
        assert one.health.failure is None
        assert not one.troubles

    play(body)


def test_a_topic_that_is_refused_does_not_fail_the_others() -> None:
    def body(one: Patient) -> None:
        one.hears(K.TOPIC_AUTHORIZATION_FAILED, "orders")
        assert one.health.failure is None
        assert one.troubles == {"topic orders"}
        one.health.assigned(["returns"])
        assert one.troubles == {"topic orders"}
        one.health.assigned(["orders"])
        assert not one.troubles

    play(body)


def test_one_broker_of_several_is_no_trouble_but_all_of_them_are() -> None:
    def body(one: Patient) -> None:
        one.hears(K._TRANSPORT)
        assert not one.troubles
        one.hears(K._ALL_BROKERS_DOWN)
        assert one.troubles == {"broker"}
        assert one.health.failure is None
        assert "no broker can be reached" in one.health.connection

    play(body)


def test_what_is_heard_again_and_again_is_told_once() -> None:
    def body(one: Patient) -> None:
        for _ in range(5):
            one.hears(K._ALL_BROKERS_DOWN)
        assert len(one.told) == 1

    play(body)


def test_the_connection_works_again_when_the_broker_answers() -> None:
    async def run() -> None:
        over = asyncio.Event()
        one = Patient(over.set)
        one.hears(K._AUTHENTICATION)
        one.health.missing("orders")
        assert isinstance(one.health.failure, Refused)
        watching = asyncio.create_task(one.health.watch())
        one.answers = True
        async with asyncio.timeout(10.0):
            await over.wait()
        watching.cancel()
        assert one.health.failure is None
        # Of a topic that is not there one hears nothing; that does not make it.
        assert one.troubles == {"topic orders"}

    asyncio.run(run())

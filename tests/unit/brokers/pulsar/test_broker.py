"""Topics that Offramp creates on Pulsar, and the subscription that keeps Pulsar from removing them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar import PulsarBroker, PulsarOptions
from sidecar.brokers.pulsar.admin import KEEPER
from sidecar.model.errors import BrokerError, NotFound, Refused, Unavailable

DEAD, RETRY = "group.offramp.dead", "group.offramp.retry"


class FakePulsar:
    """Topics and their subscriptions. The admin API raises `failures` in turn when a subscription is created, and does
    not answer at all with `away`."""

    def __init__(self, *topics: str, failures: Sequence[BrokerError] = (), away: bool = False) -> None:
        self.subscriptions: dict[str, list[str]] = {_full(topic): [] for topic in topics}
        self.creates_topics = True
        self.away = away
        self._failures = [*failures]

    async def ensure(self, topic: str, *, own: bool = False) -> None:
        broker = PulsarBroker(PulsarOptions(url="pulsar://nowhere:1"))
        fake: Any = broker
        fake.client.partitions = self._partitions
        fake.admin._send = self._send
        if own:
            broker.subscribe(SourceSpec("group", ("orders",), own_topics={RETRY: 8}))
        await broker.ensure_topic(topic, 1)

    async def _partitions(self, name: str) -> list[str]:
        if name in self.subscriptions:
            return [f"{name}-partition-0"]
        if self.creates_topics:
            return [name]
        raise NotFound("there is no such topic, and the broker does not create it")

    def _send(self, method: str, path: str, body: object, fine: int) -> Any:
        if self.away:
            raise Unavailable("the admin API cannot be used")
        name, _, what = path.replace("persistent/", "persistent://", 1).partition("?")[0].rpartition("/")
        if what == "partitions" and method == "PUT":
            self.subscriptions[name] = []
            return None
        if what == "partitions":
            if name not in self.subscriptions:
                raise NotFound("404")
            return {"partitions": 1}
        if what == "stats":
            there = self.subscriptions[name.removesuffix("-partition-0")]
            return {"subscriptions": {one: {"isDurable": not one.startswith("reader-")} for one in there}}
        assert (what, method) == (KEEPER, "PUT")
        if self._failures:
            raise self._failures.pop(0)
        self.subscriptions[name.removesuffix("-partition-0/subscription")].append(KEEPER)
        return None

    def kept(self, topic: str = DEAD) -> bool:
        return KEEPER in self.subscriptions[_full(topic)]


def _full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def ensure(fake: FakePulsar, topic: str = DEAD, *, own: bool = False) -> FakePulsar:
    asyncio.run(fake.ensure(topic, own=own))
    return fake


def test_a_topic_that_nobody_consumes_is_kept() -> None:
    assert ensure(FakePulsar()).kept()


def test_a_topic_that_a_producer_has_created_on_the_fly_is_kept() -> None:
    assert ensure(FakePulsar(DEAD)).kept()


def test_a_subscription_that_is_not_durable_keeps_nothing() -> None:
    fake = FakePulsar(DEAD)
    fake.subscriptions[_full(DEAD)].append("reader-of-letters")
    assert ensure(fake).kept()


def test_a_topic_with_a_durable_subscription_needs_no_keeper() -> None:
    fake = FakePulsar(DEAD)
    fake.subscriptions[_full(DEAD)].append("repair-team")
    assert not ensure(fake).kept()


def test_a_keeper_that_could_not_be_created_is_created_the_next_time() -> None:
    fake = FakePulsar(failures=[Unavailable("the admin API does not answer")])
    with pytest.raises(Unavailable):
        ensure(fake)
    assert not fake.kept()
    assert ensure(fake).kept()


def test_a_topic_is_used_without_a_keeper_if_the_role_may_not_create_one() -> None:
    assert not ensure(FakePulsar(DEAD, failures=[Refused("no right to subscribe")])).kept()


def test_the_topic_of_a_group_needs_no_keeper() -> None:
    assert not ensure(FakePulsar(), RETRY, own=True).kept(RETRY)


def test_a_topic_is_created_where_the_broker_creates_none() -> None:
    fake = FakePulsar()
    fake.creates_topics = False
    assert ensure(fake).kept()


@pytest.mark.parametrize("topics", [(), (DEAD,)])
def test_dead_letters_do_not_wait_for_an_admin_api_that_does_not_exist(topics: tuple[str, ...]) -> None:
    # The topic exists, or the broker creates it on the fly.
    ensure(FakePulsar(*topics, away=True))


def test_the_topic_of_a_group_is_not_left_to_be_created_on_the_fly() -> None:
    with pytest.raises(Unavailable):
        ensure(FakePulsar(away=True), RETRY, own=True)
    ensure(FakePulsar(RETRY, away=True), RETRY, own=True)

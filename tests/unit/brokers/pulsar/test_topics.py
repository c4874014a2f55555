"""Topics that Offramp makes on Pulsar: when they are made, and when they are kept."""

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
    """Topics and their durable subscriptions. Its admin API raises what `failures` holds, one for each call that makes
    a subscription, and does not answer at all while it is `away`."""

    def __init__(self, *topics: str, failures: Sequence[BrokerError] = (), away: bool = False) -> None:
        self.subscriptions: dict[str, list[str]] = {_full(topic): [] for topic in topics}
        self.makes_topics = True
        self.away = away
        self._failures = [*failures]

    async def ensure(self, topic: str, *, own: bool = False) -> None:
        broker = PulsarBroker(PulsarOptions(url="pulsar://nowhere:1"))
        fake: Any = broker
        fake.library.partitions = self._partitions
        fake.admin._call = self._call
        if own:
            broker.subscribe(SourceSpec("group", ("orders",), own_topics={RETRY: 8}))
        await broker.ensure_topic(topic, 1)

    async def _partitions(self, name: str) -> list[str]:
        if name in self.subscriptions:
            return [f"{name}-partition-0"]
        if self.makes_topics:
            return [name]
        raise NotFound("there is no such topic, and the broker makes none")

    def _call(self, method: str, path: str, body: object, fine: int) -> Any:
        if self.away:
            raise Unavailable("the admin API cannot be asked")
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


def test_a_topic_is_kept_that_a_producer_has_made_on_the_fly() -> None:
    assert ensure(FakePulsar(DEAD)).kept()


def test_a_reader_that_is_there_for_a_moment_keeps_nothing() -> None:
    fake = FakePulsar(DEAD)
    fake.subscriptions[_full(DEAD)].append("reader-of-dead-letters")
    assert ensure(fake).kept()


def test_a_topic_that_somebody_consumes_needs_no_keeper() -> None:
    fake = FakePulsar(DEAD)
    fake.subscriptions[_full(DEAD)].append("the-team-that-mends-it")
    assert not ensure(fake).kept()


def test_a_topic_that_could_not_be_kept_at_once_is_kept_the_next_time() -> None:
    fake = FakePulsar(failures=[Unavailable("the admin API does not answer")])
    with pytest.raises(Unavailable):
        ensure(fake)
    assert not fake.kept()
    assert ensure(fake).kept()


def test_a_role_that_may_not_keep_a_topic_may_use_it() -> None:
    assert not ensure(FakePulsar(DEAD, failures=[Refused("no right to subscribe")])).kept()


def test_the_topic_of_a_group_needs_no_keeper() -> None:
    assert not ensure(FakePulsar(), RETRY, own=True).kept(RETRY)


def test_a_topic_is_made_where_the_broker_makes_none() -> None:
    fake = FakePulsar()
    fake.makes_topics = False
    assert ensure(fake).kept()


@pytest.mark.parametrize("topics", [(), (DEAD,)])
def test_dead_letters_do_not_wait_for_an_admin_api_that_is_not_there(topics: tuple[str, ...]) -> None:
    # It is there already, or the broker makes it on the fly.
    ensure(FakePulsar(*topics, away=True))


def test_the_topic_of_a_group_is_not_left_to_be_made_on_the_fly() -> None:
    with pytest.raises(Unavailable):
        ensure(FakePulsar(away=True), RETRY, own=True)
    ensure(FakePulsar(RETRY, away=True), RETRY, own=True)

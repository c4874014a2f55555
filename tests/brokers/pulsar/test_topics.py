"""Topics that Offramp creates on Pulsar, where the broker creates topics on the fly and where it does not."""

import os

import pytest

from sidecar.brokers.pulsar.admin import KEEPER
from sidecar.model.records import Message
from sidecar.settings import SubscriptionSettings
from sidecar.subscription import dead_letters
from sidecar.subscription.subscription import Subscription
from tests.brokers.harness import name
from tests.brokers.pulsar.harness import running
from tests.event_loop import on_event_loop
from tests.promises.adjustable_time import until
from tests.promises.audit import Audit
from tests.promises.worker import Worker
from tests.servers.pulsar import PulsarServer


def new_namespace(server: PulsarServer, *, creates_topics: bool) -> str:
    """A namespace without retention."""
    namespace = f"public/{name('space')}"
    server.admin("PUT", f"namespaces/{namespace}", {})
    creation: dict[str, object] = {"allowAutoTopicCreation": creates_topics}
    if creates_topics:
        creation["topicType"] = "non-partitioned"
    server.admin("POST", f"namespaces/{namespace}/autoTopicCreation", creation)
    return namespace


def subscriptions(server: PulsarServer, namespace: str, topic: str) -> list[str]:
    return list(server.admin("GET", f"persistent/{namespace}/{topic}/subscriptions"))


@pytest.mark.parametrize("lanes", [0, 2])
@on_event_loop
async def test_an_existing_topic_is_kept_with_its_messages(pulsar: PulsarServer, lanes: int) -> None:
    namespace, topic = new_namespace(pulsar, creates_topics=True), name("dead")
    if lanes:
        pulsar.admin("PUT", f"persistent/{namespace}/{topic}/partitions", lanes)
    async with running(pulsar, namespace=namespace) as broker:
        # Creates the topic, if there is none.
        await broker.publish(topic, [Message(None, b"letter")])
        assert subscriptions(pulsar, namespace, topic) == []
        for _ in range(2):
            await broker.ensure_topic(topic, 1)
        assert subscriptions(pulsar, namespace, topic) == [KEEPER]
        full = f"persistent://{namespace}/{topic}"
        lanes = await broker.admin.partition_names(full)
        states = [await broker.admin.subscription_stats(lane, KEEPER) for lane in lanes]
        assert sum(state.backlog for state in states if state) == 1


@on_event_loop
async def test_a_topic_with_a_durable_subscription_gets_no_keeper(pulsar: PulsarServer) -> None:
    namespace, topic = new_namespace(pulsar, creates_topics=True), name("dead")
    pulsar.admin("PUT", f"persistent/{namespace}/{topic}/partitions", 1)
    pulsar.admin("PUT", f"persistent/{namespace}/{topic}/subscription/repair")
    async with running(pulsar, namespace=namespace) as broker:
        await broker.ensure_topic(topic, 1)
    assert subscriptions(pulsar, namespace, topic) == ["repair"]


@on_event_loop
async def test_a_subscription_opens_and_rejects_where_the_broker_creates_no_topics(pulsar: PulsarServer) -> None:
    namespace, topic = new_namespace(pulsar, creates_topics=False), name("orders")
    pulsar.admin("PUT", f"persistent/{namespace}/{topic}/partitions", 1)
    async with running(pulsar, namespace=namespace) as broker:
        settings = SubscriptionSettings(name=name("group"), topics=(topic,))
        subscription = Subscription(settings, broker, prefix=os.urandom(10))
        await subscription.start()
        await broker.publish(topic, [Message(None, b"bad")])
        Worker(subscription, Audit(), handler=lambda batch: batch.reject())
        await until(lambda: subscription.tracker.counters.dead_lettered == 1, "it is dead-lettered")
        page = await dead_letters.list_dead_letters(broker, settings)
        assert [letter.record.value for letter in page.letters] == [b"bad"]
        assert subscriptions(pulsar, namespace, settings.dead_letter_topic) == [KEEPER]
        await subscription.close()

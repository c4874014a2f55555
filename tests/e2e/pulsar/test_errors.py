"""Problems with Pulsar: each has a sentence of its own, in the status and in the log."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.brokers.harness import name
from tests.e2e.broker_case import BrokerCase
from tests.e2e.harness import eventually, offramp
from tests.e2e.pulsar.snapshot import client_of
from tests.servers import certificates
from tests.servers.process import free_ports
from tests.servers.pulsar import PulsarServer


class Case(BrokerCase):
    def __init__(self, folder: Path, server: PulsarServer, topic: str = "", **broker: Any) -> None:
        pulsar = {"type": "pulsar", "url": server.url, "admin_url": server.admin_url, "timeout": "2s", **broker}
        super().__init__(folder, topic or name("topic"), pulsar)
        self.server = server

    def make_topics(self) -> Self:
        """By somebody who may: its own one, and that of its group."""
        self.server.make_topic(self.topic)
        self.server.make_topic(f"{self.group}.offramp.retry", 8)
        return self

    def works(self) -> None:
        """It gets what is published now."""
        eventually(lambda: not self.sidecar.status().trouble, "the trouble is over", 120.0)
        with client_of(self.server) as client:
            client.create_producer(self.topic).send(b"value")
        eventually(lambda: self.sidecar.status().counters.fetched, "a record comes")


@pytest.fixture
def case(tmp_path: Path, pulsar: PulsarServer) -> Iterator[Any]:
    with contextlib.ExitStack() as cases:

        def make(**broker: Any) -> Case:
            made = Case(tmp_path, pulsar, **broker)
            cases.push(made.sidecar.__exit__)
            return made

        yield make


def test_a_broker_that_is_not_there(case: Any) -> None:
    (port,) = free_ports(1)
    case(url=f"pulsar://127.0.0.1:{port}").start().trouble("nobody listens at 127.0.0.1", str(port))


def test_a_host_that_is_not_known(case: Any) -> None:
    case(url="pulsar://no-such-host.invalid:6650").start().trouble("the host no-such-host.invalid is not known")


def test_a_token_that_is_not_one(case: Any) -> None:
    case(token="nonsense").start().trouble("rejects these credentials")


def test_a_role_without_rights_and_then_with_them(case: Any, pulsar: PulsarServer) -> None:
    role = name("role")
    one = case(token=pulsar.token(role)).make_topics().start()
    one.trouble("this role has no right")
    pulsar.grant(role, "consume", "produce")
    one.works()


def test_a_role_that_may_not_make_the_topics_of_its_group(case: Any, pulsar: PulsarServer) -> None:
    role = name("role")
    pulsar.grant(role, "consume", "produce")
    one = case(token=pulsar.token(role))
    pulsar.make_topic(one.topic)
    one.start().trouble(f"Create persistent://public/default/{one.group}.offramp.retry with 8 partitions yourself")
    pulsar.make_topic(f"{one.group}.offramp.retry", 8)
    one.works()


def test_a_token_in_a_file_that_is_replaced(case: Any, pulsar: PulsarServer, tmp_path: Path) -> None:
    file, role = tmp_path / "token", name("role")
    file.write_text("nonsense\n")
    one = case(token_file=str(file)).make_topics().start()
    one.trouble("rejects these credentials")
    pulsar.grant(role, "consume", "produce")
    file.write_text(pulsar.token(role) + "\n")
    one.works()


def test_tls_and_a_token(case: Any, pulsar: PulsarServer) -> None:
    role = name("role")
    pulsar.grant(role, "consume", "produce")
    tls = {"url": pulsar.url_tls, "admin_url": pulsar.admin_url_tls, "tls_ca": str(pulsar.ca)}
    case(token=pulsar.token(role), **tls).make_topics().start().works()


def test_a_certificate_that_is_not_trusted(case: Any, pulsar: PulsarServer, tmp_path: Path) -> None:
    other = certificates.make(tmp_path / "other")
    tls = {"url": pulsar.url_tls, "admin_url": pulsar.admin_url_tls, "tls_ca": str(other.ca)}
    case(**tls).start().trouble("the certificate of 127.0.0.1", "is not trusted")


def test_a_port_without_tls(case: Any, pulsar: PulsarServer) -> None:
    url = pulsar.url.replace("pulsar://", "pulsar+ssl://")
    case(url=url, tls_ca=str(pulsar.ca)).start().trouble("TLS with 127.0.0.1", "fails")


def test_a_topic_that_is_missing_where_none_is_made(case: Any, pulsar: PulsarServer) -> None:
    namespace = f"public/{name('space')}"
    pulsar.admin("PUT", f"namespaces/{namespace}", {})
    pulsar.admin("POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    topic = f"persistent://{namespace}/{name('topic')}"
    case(topic=topic).start().trouble(topic, "there is no such topic")


def test_a_namespace_that_is_missing(case: Any) -> None:
    case(topic=f"persistent://public/{name('space')}/topic").start().trouble("there is no such topic or namespace")


def test_a_group_that_another_type_of_consumer_has(case: Any, pulsar: PulsarServer) -> None:
    one = case(subscription_type="failover").make_topics()
    with client_of(pulsar) as client:
        client.subscribe(one.topic, one.group)
        one.start().trouble("the subscription has consumers already", "another subscription_type")
    one.works()


def test_the_command_refuses_what_cannot_be_promised(tmp_path: Path) -> None:
    config = tmp_path / "offramp.yaml"
    config.write_text(
        "brokers: {pulsar: {url: 'pulsar://pulsar:6650', subscription_type: shared}}\n"
        "subscriptions: {orders: {broker: pulsar, topics: [orders], order: lane}}\n"
    )
    done = offramp("lint", "--config", str(config))
    assert done.returncode != 0
    assert 'subscriptions.orders.order: "lane" cannot be kept with subscription_type shared' in done.stderr

"""What can be wrong with a Pulsar: each trouble has its own line, in the status and in the log."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.brokers.pulsar import name
from tests.e2e.harness import Sidecar, eventually
from tests.e2e.pulsar.snapshot import client_of
from tests.servers import certificates
from tests.servers.process import free_ports
from tests.servers.pulsar import PulsarServer


class Case:
    """A sidecar whose broker is set up in some way."""

    def __init__(self, folder: Path, server: PulsarServer, topic: str = "", **broker: Any) -> None:
        self.topic = topic or name("topic")
        self.server = server
        self.group = self.topic.rpartition("/")[2]
        subscription = {"broker": "pulsar", "topics": [self.topic], "group": self.group}
        pulsar = {"type": "pulsar", "url": server.url, "admin_url": server.admin_url, "timeout": "2s", **broker}
        folder = folder / self.group
        folder.mkdir()
        self.sidecar = Sidecar(folder, subscriptions={"orders": subscription}, brokers={"pulsar": pulsar})

    def make_topics(self) -> "Case":
        """By somebody who may: its own one, and that of its group."""
        self.server.make_topic(self.topic)
        self.server.make_topic(f"{self.group}.offramp.retry", 8)
        return self

    def start(self) -> "Case":
        """It answers, whatever the broker does."""
        self.sidecar.launch()
        eventually(self._answers, "the sidecar answers")
        return self

    def _answers(self) -> bool:
        try:
            self.sidecar.status()
        except grpc.RpcError:
            return False
        return True

    def trouble(self, *words: str) -> str:
        """Waits for a line of the status, and of the log, that has these words; answers the line."""

        def told() -> str:
            status = self.sidecar.status()
            return next((line for line in status.trouble if all(word in line for word in words)), "")

        line = eventually(told, f"the status says {words}; it says {[*self.sidecar.status().trouble]}", 120.0)
        eventually(
            lambda: any(all(word in str(event) for word in words) for event in self.sidecar.events()),
            f"the log says {words}",
        )
        # A line is for people.
        assert "Error" not in line
        assert "Traceback" not in self.sidecar.log
        return line

    def works(self) -> None:
        """It gets what is published now."""
        eventually(lambda: not self.sidecar.status().trouble, "the trouble is over", 120.0)
        with client_of(self.server) as client:
            client.create_producer(self.topic).send(b"value")
        eventually(lambda: self.sidecar.status().counters.fetched, "a record comes")


@pytest.fixture
def case(tmp_path: Path, pulsar: PulsarServer) -> Iterator[Any]:
    made: list[Case] = []

    def make(**broker: Any) -> Case:
        made.append(Case(tmp_path, pulsar, **broker))
        return made[-1]

    yield make
    for one in made:
        one.sidecar.__exit__(None, None, None)


def test_a_broker_that_is_not_there(case: Any) -> None:
    (port,) = free_ports(1)
    case(url=f"pulsar://127.0.0.1:{port}").start().trouble("nobody listens at 127.0.0.1", str(port))


def test_a_host_that_is_not_known(case: Any) -> None:
    case(url="pulsar://no-such-host.invalid:6650").start().trouble("the host no-such-host.invalid is not known")


def test_a_token_that_is_not_one(case: Any) -> None:
    case(token="nonsense").start().trouble("does not take these credentials")


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
    one.trouble("does not take these credentials")
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
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", "lint", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert 'subscriptions.orders.order: "lane" cannot be kept with subscription_type shared' in done.stderr

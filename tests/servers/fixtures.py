"""What tests ask for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import sharing
from tests.servers.kafka import KafkaServer
from tests.servers.pulsar import PulsarServer
from tests.servers.tools import Missing, give_up


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        sharing.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        sharing.end()


@pytest.fixture(scope="session")
def kafka() -> KafkaServer:
    """The Kafka of this test run. It is never stopped or changed; topics and groups have names of their own."""
    try:
        return sharing.kafka()
    except Missing as missing:
        give_up(missing)


#: makes a server that the test may stop and kill; takes what `KafkaServer.create` takes
NewKafka = Callable[..., KafkaServer]


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[NewKafka]:
    """Makes and starts servers for one test alone."""
    made: list[KafkaServer] = []

    def make(**options: Any) -> KafkaServer:
        try:
            made.append(KafkaServer.create(tmp_path / f"kafka-{len(made)}", **options))
        except Missing as missing:
            give_up(missing)
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.discard()


@pytest.fixture(scope="session")
def pulsar() -> PulsarServer:
    """The Pulsar of this test run. It is never stopped or changed; topics and groups have names of their own."""
    try:
        return sharing.pulsar()
    except Missing as missing:
        give_up(missing)


#: makes a server that the test may stop and kill; takes what `PulsarServer.create` takes
NewPulsar = Callable[..., PulsarServer]


@pytest.fixture
def new_pulsar(tmp_path: Path) -> Iterator[NewPulsar]:
    """Makes and starts servers for one test alone."""
    made: list[PulsarServer] = []

    def make(**options: Any) -> PulsarServer:
        try:
            made.append(PulsarServer.create(tmp_path / f"pulsar-{len(made)}", **options))
        except Missing as missing:
            give_up(missing)
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.discard()

"""Fixtures of servers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.servers import sharing
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pulsar import PulsarServer
from tests.servers.redis import RedisServer
from tests.servers.tools import Missing, give_up

Made = TypeVar("Made", KafkaServer, PulsarServer, NatsServer, RedisServer)

#: make a server that the test may stop and kill; they take what `create` of its class takes
NewKafka = Callable[..., KafkaServer]
NewPulsar = Callable[..., PulsarServer]
NewNats = Callable[..., NatsServer]
NewRedis = Callable[..., RedisServer]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        sharing.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        sharing.end()


@pytest.fixture(scope="session")
def kafka() -> KafkaServer:
    """The Kafka of this test run. It is never stopped or changed; topics and groups have names of their own."""
    return _given(sharing.kafka)


@pytest.fixture(scope="session")
def pulsar() -> PulsarServer:
    """The Pulsar of this test run. It is never stopped or changed; topics and groups have names of their own."""
    return _given(sharing.pulsar)


@pytest.fixture(scope="session")
def nats() -> NatsServer:
    """The NATS of this test run. It is never stopped or changed; streams and groups have names of their own."""
    return _given(sharing.nats)


@pytest.fixture(scope="session")
def redis() -> RedisServer:
    """The Redis of this test run. It is never stopped or changed; streams and groups have names of their own."""
    return _given(sharing.redis)


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka that the tests of one file may stop, kill and freeze. It runs at the end of each."""
    yield from _own(KafkaServer, tmp_path_factory)


@pytest.fixture(scope="module")
def own_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    """A Pulsar that the tests of one file may stop, kill and freeze. It runs at the end of each."""
    yield from _own(PulsarServer, tmp_path_factory)


@pytest.fixture(scope="module")
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS that the tests of one file may stop, kill and freeze. It runs at the end of each."""
    yield from _own(NatsServer, tmp_path_factory)


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that the tests of one file may stop, kill and freeze. It runs at the end of each."""
    yield from _own(RedisServer, tmp_path_factory)


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[NewKafka]:
    """Makes and starts servers for one test alone."""
    yield from _maker(KafkaServer, tmp_path)


@pytest.fixture
def new_pulsar(tmp_path: Path) -> Iterator[NewPulsar]:
    """Makes and starts servers for one test alone."""
    yield from _maker(PulsarServer, tmp_path)


@pytest.fixture
def new_nats(tmp_path: Path) -> Iterator[NewNats]:
    """Makes and starts servers for one test alone."""
    yield from _maker(NatsServer, tmp_path)


@pytest.fixture
def new_redis(tmp_path: Path) -> Iterator[NewRedis]:
    """Makes and starts servers for one test alone."""
    yield from _maker(RedisServer, tmp_path)


def _given(ask: Callable[[], Made]) -> Made:
    try:
        return ask()
    except Missing as missing:
        give_up(missing)


def _own(server_class: type[Made], folders: pytest.TempPathFactory) -> Iterator[Made]:
    server = _given(lambda: server_class.create(folders.mktemp(server_class.name)))
    server.start()
    yield server
    server.discard()


def _maker(server_class: type[Made], folder: Path) -> Iterator[Callable[..., Made]]:
    made: list[Made] = []

    def make(**options: Any) -> Made:
        server = _given(lambda: server_class.create(folder / f"{server_class.name}-{len(made)}", **options))
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.discard()

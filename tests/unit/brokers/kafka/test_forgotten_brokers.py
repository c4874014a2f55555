"""A client of librdkafka that has forgotten all brokers does not find them again, and must be replaced.

The real library, with a broker that does what is rare: it closes the connection with a response, and names no broker.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.kafka import options, producer
from sidecar.brokers.kafka.admin import Admin
from sidecar.brokers.kafka.consumer.commits import CommitRequest
from sidecar.brokers.kafka.consumer.poll_thread import PollThread
from sidecar.brokers.kafka.consumer.position_control import LaneReader
from sidecar.brokers.kafka.forgotten_brokers import has_forgotten_brokers
from sidecar.brokers.kafka.library_logs import LibraryClients
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.brokers.kafka.producer import Publisher
from sidecar.model.errors import Unavailable
from sidecar.model.records import Lane, Message
from tests.event_loop import on_event_loop

#: the API keys of requests, each with the latest version that the broker knows
_PRODUCE, _FETCH = (0, 3), (1, 4)
_METADATA, _FIND_COORDINATOR, _API_VERSIONS, _INIT_PRODUCER_ID = (3, 4), (10, 0), (18, 0), (22, 1)
_ALL = (_PRODUCE, _FETCH, _METADATA, _FIND_COORDINATOR, _API_VERSIONS, _INIT_PRODUCER_ID)
#: the response closes the connection: the library is about to begin anew, and the response cancels that
_CLOSING = 4
_NO_COORDINATOR, _NO_LEADER, _NOT_SUPPORTED = 15, 5, 35
_TIMEOUT = 60.0
#: properties of the clients: the rare response comes soon
_OFTEN = {"topic.metadata.refresh.interval.ms": "50", "reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "10"}


class Broker:
    """A broker with one topic of one lane. It answers neither a fetch nor a produce request."""

    def __init__(self, *, forgetful: bool) -> None:
        """`forgetful`: some responses close the connection, the next names no broker, and so on."""
        responses = [*[(True, True)] * _CLOSING, (False, True), (False, False)] if forgetful else [(False, True)]
        #: whether it closes the connection, and whether the broker names itself
        self._metadata_responses: Iterator[tuple[bool, bool]] = itertools.cycle(responses)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), connection, connection.makefile("rb") as requests:
            while head := requests.read(4):
                request = requests.read(struct.unpack(">i", head)[0])
                key, version, number = struct.unpack(">hhi", request[:8])
                closes, response = False, b""
                if key == _METADATA[0]:
                    closes, names_itself = next(self._metadata_responses)
                    response = self._metadata(names_itself)
                elif key == _FIND_COORDINATOR[0]:
                    response = struct.pack(">hih", _NO_COORDINATOR, -1, 0) + struct.pack(">i", -1)
                elif key == _API_VERSIONS[0]:
                    response = self._api_versions(_NOT_SUPPORTED if version > _API_VERSIONS[1] else 0)
                elif key == _INIT_PRODUCER_ID[0]:
                    response = struct.pack(">ihqh", 0, 0, 1, 0)
                if response:
                    connection.sendall(struct.pack(">ii", len(response) + 4, number) + response)
                if closes:
                    connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _api_versions(error: int) -> bytes:
        return struct.pack(">hi", error, len(_ALL)) + b"".join(struct.pack(">hhh", key, 0, most) for key, most in _ALL)

    def _metadata(self, names_itself: bool) -> bytes:
        throttle, cluster = struct.pack(">i", 0), _text("cluster")
        itself = struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        brokers = struct.pack(">i", 1) + itself if names_itself else struct.pack(">i", 0)
        error, leader = (0, 1) if names_itself else (_NO_LEADER, -1)
        lane = struct.pack(">hii", error, 0, leader) + struct.pack(">iiii", 1, 1, 1, 1)
        topic = struct.pack(">h", 0) + _text("orders") + struct.pack(">bi", 0, 1) + lane
        return throttle + brokers + cluster + struct.pack(">i", leader) + struct.pack(">i", 1) + topic


class Events:
    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.has_ended = threading.Event()

    def ended(self, error: BaseException | None) -> None:
        self.error = error
        self.has_ended.set()

    def assigned(self, readers: list[LaneReader]) -> None: ...

    def position_lost(self, reader: LaneReader) -> None: ...

    def query_commit(self, request: CommitRequest) -> None: ...

    def check_commit(self, request: CommitRequest, lanes: Collection[Lane]) -> None: ...

    def failed(self, error: KafkaError, topic: str | None) -> None: ...


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], LibraryClients]]:
    """Starts a broker, and makes what creates clients of it. The argument: whether it is forgetful."""
    monkeypatch.setattr(options, "STATISTICS_INTERVAL", 100)
    with contextlib.ExitStack() as brokers:

        def start(forgetful: bool) -> LibraryClients:
            broker = brokers.enter_context(contextlib.closing(Broker(forgetful=forgetful)))
            return LibraryClients(KafkaOptions(servers=(f"127.0.0.1:{broker.port}",), properties=_OFTEN))

        yield start


@pytest.mark.parametrize("forgetful", ["member", "fetcher"])
def test_the_poll_thread_ends_when_a_consumer_has_forgotten_all_brokers(
    forgetful: str, start: Callable[[bool], LibraryClients]
) -> None:
    def connect_member(callbacks: Mapping[str, Any]) -> Consumer:
        clients = start(forgetful == "member")
        conf = options.member_properties(clients.options, "group", GroupProtocol.CLASSIC)
        return clients.create(Consumer, {**conf, **callbacks})

    def connect_fetcher(callbacks: Mapping[str, Any]) -> Consumer:
        clients = start(forgetful == "fetcher")
        fetcher = clients.create(Consumer, {**options.fetcher_properties(clients.options, "group"), **callbacks})
        fetcher.incremental_assign([TopicPartition("orders", 0, 0)])
        return fetcher

    events = Events()
    buffer = PollBuffer(lambda: None)
    thread = PollThread(connect_member, connect_fetcher, ["orders"], buffer, events, grace=1.0, trying_protocol=False)
    thread.start()
    ended = events.has_ended.wait(_TIMEOUT)
    thread.stop()
    assert ended
    assert isinstance(events.error, KafkaException)
    assert events.error.args[0].code() == KafkaError._ALL_BROKERS_DOWN


@on_event_loop
async def test_a_producer_that_has_forgotten_all_brokers_is_replaced(
    start: Callable[[bool], LibraryClients], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "_CLOSE_TIMEOUT", 0.1)
    publisher = Publisher(start(True), lambda: None)
    first = publisher._producer
    async with asyncio.timeout(_TIMEOUT):
        while publisher._producer is first:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(0.05):
                    await publisher.publish("orders", [Message(b"key", b"value")])
    assert publisher._forgetful is first
    await publisher.close()


@on_event_loop
async def test_an_admin_client_that_has_forgotten_all_brokers_is_replaced(
    start: Callable[[bool], LibraryClients],
) -> None:
    admin = Admin(start(True))
    first = admin._client
    async with asyncio.timeout(_TIMEOUT):
        while admin._client is first:
            with contextlib.suppress(Unavailable):
                await admin.connect()
            admin.poll()


@pytest.mark.parametrize("source", ["configured", "learned"])
def test_a_broker_that_cannot_be_reached_is_not_forgotten(source: str) -> None:
    known = {"GroupCoordinator": {"source": "logical"}, "a:9092/1": {"source": source, "state": "DOWN"}}
    assert not has_forgotten_brokers({"brokers": known})


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()

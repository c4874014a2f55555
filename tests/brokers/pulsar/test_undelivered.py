"""Messages that the library withholds: those whose chunks are incomplete, and those that it cannot decrypt."""

import asyncio
import re
import subprocess
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pulsar as library
import pytest

from sidecar.brokers.pulsar.options import SubscriptionType
from sidecar.brokers.pulsar.positions import Id, pack
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import consuming, name, new_topic
from tests.brokers.pulsar.harness import await_no_backlog, running
from tests.e2e.pulsar.snapshot import client_of
from tests.event_loop import on_event_loop
from tests.servers.fixtures import NewPulsar
from tests.servers.pulsar import PulsarServer
from tests.servers.tools import tool

#: bytes of a chunk
CHUNK = 20 << 10
LARGE = bytes(200 * CHUNK)
EXCLUSIVE_TYPES = [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER]
_PLACES = re.compile(r"\((\d+),(\d+),")


class Written(NamedTuple):
    """The ids of a message in chunks (its first and last chunk), of the small ones around it, and of the last one."""

    first: Id
    last: Id
    small: list[Id]
    end: Id

    def between(self) -> int:
        return sum(self.first < id_ < self.last for id_ in self.small)

    def after(self) -> int:
        return sum(id_ > self.last for id_ in self.small)


def write_at_the_same_time(server: PulsarServer, topic: str) -> Written:
    """Publishes a large message, and small ones by another producer at the same time."""
    done = threading.Event()
    small: list[Id] = []

    def write_small(producer: Any) -> None:
        while not done.is_set():
            producer.send_async(b"small", lambda result, id_: small.append(_places(id_)[-1]))
        producer.flush()

    with client_of(server) as one, client_of(server) as other:
        # Few pending messages, so that not far more is written than the test needs.
        settings: dict[str, Any] = {"max_pending_messages": 20, "block_if_queue_full": True}
        producer = other.create_producer(f"{topic}-partition-0", **settings)
        producer.send(b"first")
        writing = threading.Thread(target=write_small, args=(producer,))
        writing.start()
        try:
            chunking = one.create_producer(f"{topic}-partition-0", chunking_enabled=True)
            first, last = _places(chunking.send(LARGE))
        finally:
            done.set()
            writing.join()
        end = _places(producer.send(b"last"))[-1]
    return Written(first, last, small, end)


def _places(id_: Any) -> list[Id]:
    """The id of a message; of one in chunks, those of the first and the last chunk."""
    return [Id(int(ledger), int(entry)) for ledger, entry in _PLACES.findall(str(id_))]


def test_a_message_in_chunks_is_not_acked_by_messages_between_its_chunks(new_pulsar: NewPulsar) -> None:
    server = new_pulsar(properties={"maxMessageSize": str(CHUNK)})
    for kind in EXCLUSIVE_TYPES:
        written, tries = None, 0
        # Sometimes nothing is written between the chunks.
        while written is None or not written.between():
            topic = new_topic(server)
            written = write_at_the_same_time(server, topic)
            tries += 1
            assert tries < 50, "nothing was ever written between the chunks"
        asyncio.run(consume_with_a_restart_before_the_large_one(server, topic, kind, written))


async def consume_with_a_restart_before_the_large_one(
    server: PulsarServer, topic: str, kind: SubscriptionType, written: Written
) -> None:
    lane, group = Lane(topic, 0), name("group")
    async with running(server, subscription_type=kind) as broker:
        async with consuming(broker, topic, group=group) as consumer:
            await consumer.take(len(written.small) + 3)
            # All before the large one is settled, also the messages between its chunks.
            await consumer.commit(lane, Commit(pack(*written.last)))
        async with consuming(broker, topic, group=group) as consumer:
            assert await consumer.take(written.after() + 2) == [LARGE, *[b"small"] * written.after(), b"last"]
            await consumer.commit(lane, Commit(pack(*written.end) + 1))
            # The broker's cursor has passed all gaps, so acks are cumulative again.
            source: Any = consumer.source
            assert source._lanes[lane].unacked.has_gaps
            await consumer.until(lambda: not source._lanes[lane].unacked.has_gaps)
    await_no_backlog(server, topic, group)


@pytest.fixture
def key_pair(tmp_path: Path) -> library.CryptoKeyReader:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run([tool("openssl"), "genrsa", "-traditional", "-out", private, "2048"], check=True, timeout=60)
    subprocess.run([tool("openssl"), "rsa", "-in", private, "-pubout", "-out", public], check=True, timeout=60)
    return library.CryptoKeyReader(str(public), str(private))


@pytest.mark.parametrize("kind", EXCLUSIVE_TYPES)
@on_event_loop
async def test_a_message_that_the_library_cannot_decrypt_is_not_acked_by_later_ones(
    pulsar: PulsarServer, kind: SubscriptionType, key_pair: library.CryptoKeyReader
) -> None:
    topic, group = new_topic(pulsar), name("group")
    with client_of(pulsar) as client:
        plain = client.create_producer(f"{topic}-partition-0")
        sealed = client.create_producer(f"{topic}-partition-0", encryption_key="key", crypto_key_reader=key_pair)
        plain.send(b"before")
        sealed.send(b"sealed")
        after = _places(plain.send(b"after"))[-1]
    async with (
        running(pulsar, subscription_type=kind) as broker,
        consuming(broker, topic, group=group) as consumer,
    ):
        assert await consumer.take(2) == [b"before", b"after"]
        await consumer.commit(Lane(topic, 0), Commit(pack(*after) + 1))
    assert pulsar.backlog(topic, group) == 1

    # A consumer with the key gets it.
    with client_of(pulsar) as client:
        other = client.subscribe(f"{topic}-partition-0", group, crypto_key_reader=key_pair)
        assert other.receive(20_000).data() == b"sealed"

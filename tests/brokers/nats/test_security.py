"""Credentials, rights and TLS, on real listeners."""

import asyncio
from pathlib import Path
from typing import Any

import nkeys
import pytest

from sidecar.brokers.nats.driver import NatsBroker
from sidecar.model.errors import Refused, Unavailable
from sidecar.model.records import Commit, Lane, Start
from tests.brokers.harness import consuming, name, numbered, publish
from tests.brokers.nats.harness import options, running
from tests.servers import certificates
from tests.servers.fixtures import NewNats
from tests.servers.nats import NatsServer

ADMIN = {"user": "admin", "password": "admin"}
#: what docs/brokers/nats.md says that a user needs who consumes `orders` as `billing`
RIGHTS = """
publish: [
  "$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.STREAM.PURGE.billing_offramp_retry",
  "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.DURABLE.CREATE.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.>",
  "orders", "billing.offramp.>"
]
subscribe: ["_INBOX.>"]
"""


def _users(rights: str) -> str:
    return f"""
accounts {{ A {{ jetstream: enabled, users: [
  {{ user: admin, password: admin }}
  {{ user: limited, password: "secret", permissions {{ {rights} }} }}
] }} }}
"""


async def _works(server: NatsServer, **more: Any) -> None:
    topic = "orders"
    async with running(server, create_streams=False, **more) as broker:
        own = {"billing.offramp.retry": 1}
        async with consuming(broker, topic, group="billing", own_topics=own) as consumer:
            await publish(broker, topic, *numbered(3))
            await publish(broker, "billing.offramp.retry", b"parked")
            await consumer.take(4)
            end = max(at for chunk in consumer.chunks if chunk.lane.topic == topic for at in chunk.positions) + 1
            await consumer.commit(Lane(topic, 0), Commit(end))


def test_the_rights_that_the_page_names_are_enough(new_nats: NewNats) -> None:
    server = new_nats(settings=_users(RIGHTS), login=ADMIN)
    for topic in ("orders", "billing.offramp.retry"):
        server.make_topic(topic)
    asyncio.run(_works(server, username="limited", password="secret"))


@pytest.mark.parametrize("missing", ["$JS.API.CONSUMER.MSG.NEXT", "$JS.ACK", "$JS.API.CONSUMER.INFO", '"orders"'])
def test_a_right_that_is_missing_is_named_at_once(new_nats: NewNats, missing: str) -> None:
    server = new_nats(
        settings=_users(RIGHTS.replace(missing, missing.replace("$JS", "$NO").replace("orders", "no"))), login=ADMIN
    )
    for topic in ("orders", "billing.offramp.retry"):
        server.make_topic(topic)

    async def use(broker: NatsBroker) -> None:
        receiver = await broker.driver.receiver(Lane("orders", 0), "billing", Start.EARLIEST)
        await publish(broker, "orders", b"value")
        found = await receiver.receive(1, 1000, 1.0)
        await receiver.ack([one.handle for one in found], 1)

    async def run() -> None:
        async with running(server, username="limited", password="secret", create_streams=False, timeout=30.0) as broker:
            with pytest.raises(Refused, match=r"has no right to: permissions violation for publish to"):
                await asyncio.wait_for(use(broker), 15.0)

    asyncio.run(run())


def test_answers_that_nobody_may_hear_are_named(new_nats: NewNats) -> None:
    async def use(broker: NatsBroker) -> None:
        await broker.open()
        await broker.driver.lanes("orders")

    server = new_nats(settings=_users(RIGHTS.replace("_INBOX.>", "MINE.>")), login=ADMIN)

    async def run() -> None:
        broker = NatsBroker(options(server, username="limited", password="secret", timeout=30.0))
        with pytest.raises(Refused, match="permissions violation for subscription"):
            await asyncio.wait_for(use(broker), 15.0)
        await broker.close()

    asyncio.run(run())
    for topic in ("orders", "billing.offramp.retry"):
        server.make_topic(topic)
    asyncio.run(_works(server, username="limited", password="secret", inbox_prefix="MINE"))


def test_a_password_in_a_file_may_be_replaced(new_nats: NewNats, tmp_path: Path) -> None:
    server = new_nats(settings=_users(RIGHTS), login=ADMIN)
    file = tmp_path / "password"

    async def run() -> None:
        file.write_text("wrong\n")
        broker = NatsBroker(options(server, username="limited", password_file=str(file)))
        with pytest.raises(Refused, match="does not take these credentials"):
            await broker.open()
        file.write_text("secret\n")
        await broker.open()
        await broker.close()

    asyncio.run(run())


def test_a_token_and_an_nkey(new_nats: NewNats, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    key = nkeys.from_seed(seed)
    (tmp_path / "seed").write_bytes(seed)
    token = new_nats(settings='authorization { token: "t0ken" }', login={"token": "t0ken"})
    nkey = new_nats(settings=f"authorization {{ users: [ {{ nkey: {key.public_key.decode()} }} ] }}")

    async def run() -> None:
        for server, way in ((token, {"token": "t0ken"}), (nkey, {"nkey_file": str(tmp_path / "seed")})):
            with pytest.raises(Refused, match="does not take these credentials"):
                async with running(server):
                    pass
            async with running(server, **way) as broker:
                topic = name("topic")
                await broker.ensure_topic(topic, 1)
                await publish(broker, topic, b"value")

    asyncio.run(run())


def test_tls_with_a_password(new_nats: NewNats, tmp_path: Path) -> None:
    server = new_nats(tls=True, settings=_users(RIGHTS), login=ADMIN)
    other = certificates.make(tmp_path / "other")
    login = {"username": "admin", "password": "admin"}

    async def run() -> None:
        async with running(server, url=server.url_tls, tls_ca=str(server.ca), **login) as broker:
            topic = name("topic")
            await broker.ensure_topic(topic, 1)
            assert await publish(broker, topic, b"value") == [1]
        with pytest.raises(Refused, match="the certificate of the server is not trusted"):
            async with running(server, url=server.url_tls, tls_ca=str(other.ca), **login):
                pass

    asyncio.run(run())


def test_a_password_is_never_sent_to_a_server_that_offers_no_tls(nats: NatsServer) -> None:
    """Who can answer in its place could have it otherwise: the library asks the server whether to use TLS."""
    said: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true}\r\n')
        said.append(await reader.read(1000))
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(pretend, "127.0.0.1", 0) as fake:
            port = fake.sockets[0].getsockname()[1]
            login = {"username": "user", "password": "secret", "tls_ca": str(tmp), "timeout": 3.0}
            broker = NatsBroker(options(nats, url=f"tls://127.0.0.1:{port}", **login))
            with pytest.raises(Refused, match="offers no TLS"):
                await broker.open()
        assert b"".join(said) == b""

    made = certificates.make(nats.folder / "certificates")
    tmp = made.ca
    asyncio.run(run())


def test_a_server_that_is_not_there_is_unavailable() -> None:
    from sidecar.brokers.nats import NatsOptions
    from tests.servers.process import free_ports

    (port,) = free_ports(1)

    async def run() -> None:
        broker = NatsBroker(NatsOptions(url=f"nats://127.0.0.1:{port}"))
        with pytest.raises(Unavailable, match="nobody listens there"):
            await broker.open()

    asyncio.run(run())

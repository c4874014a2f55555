"""The admin API of Pulsar: who is asked, and what it costs if nobody answers."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.broker import PulsarBroker
from sidecar.brokers.pulsar.options import PulsarOptions
from sidecar.model.errors import Unavailable
from sidecar.settings import Seconds

NAME = "persistent://public/default/orders"


class Broker(ThreadingHTTPServer):
    """Sends callers on to `owner`, if there is one, as a broker of a cluster does that does not have the topic."""

    def __init__(self, owner: "Broker | None" = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        #: method, path, body and token of what it has answered itself
        self.asked: list[tuple[str, str, Any, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Broker

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        if self.server.owner is not None:
            self.send_response(307)
            self.send_header("Location", self.server.owner.url + self.path)
        else:
            self.server.asked.append((self.command, self.path, body, self.headers["Authorization"]))
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


@contextmanager
def serving(broker: Broker) -> Iterator[Broker]:
    thread = threading.Thread(target=broker.serve_forever)
    thread.start()
    try:
        yield broker
    finally:
        broker.shutdown()
        thread.join()
        broker.server_close()


def test_a_broker_that_does_not_have_the_topic_says_who_has_it_and_that_one_is_asked() -> None:
    with serving(Broker()) as owner, serving(Broker(owner)) as other:
        options = PulsarOptions(url="pulsar://nowhere", admin_url=other.url, token="secret")
        asyncio.run(Admin(options).move(NAME, "group", 4, 7, after=False))
        path = "/admin/v2/persistent/public/default/orders/subscription/group/resetcursor"
        body = {"ledgerId": 4, "entryId": 7, "partitionIndex": -1, "excluded": False}
        assert owner.asked == [("POST", path, body, "Bearer secret")]


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing: as good as a firewall that drops what comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_admin_api_that_does_not_answer_holds_up_neither_receiving_nor_acking() -> None:
    async def body(url: str) -> None:
        broker = PulsarBroker(PulsarOptions(url="pulsar://127.0.0.1:1", admin_url=url, timeout=Seconds(2.0)))
        asking = [asyncio.create_task(broker.admin.standing(NAME)) for _ in range(50)]
        await asyncio.sleep(0)
        async with asyncio.timeout(1.5):
            assert await broker.library.run("receive", lambda: "received") == "received"
        assert not any(one.done() for one in asking)
        await asyncio.gather(*asking, return_exceptions=True)
        await broker.close()

    with silent() as url:
        asyncio.run(body(url))


def test_many_calls_that_nobody_answers_take_no_longer_than_a_few() -> None:
    async def body(url: str) -> None:
        admin = Admin(PulsarOptions(url="pulsar://nowhere", admin_url=url, timeout=Seconds(1.0)))
        begun = time.monotonic()
        answers = await asyncio.gather(*(admin.standing(NAME) for _ in range(100)), return_exceptions=True)
        assert all(isinstance(one, Unavailable) for one in answers)
        # One by one in a few threads they would take 25 seconds.
        assert time.monotonic() - begun < 8
        # What is asked later is asked.
        with pytest.raises(Unavailable, match="timed out"):
            await admin.standing(NAME)
        admin.close()

    with silent() as url:
        asyncio.run(body(url))

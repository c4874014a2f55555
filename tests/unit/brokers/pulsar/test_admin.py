"""The admin API: redirects, timeouts, and what is read of its answers."""

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
    """Redirects to `owner`, if there is one, like a broker of a cluster that does not have the topic."""

    def __init__(self, owner: "Broker | None" = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        #: method, path, body and token of the requests that it has answered itself
        self.requests: list[tuple[str, str, Any, str | None]] = []

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
            self.server.requests.append((self.command, self.path, body, self.headers["Authorization"]))
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


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


def test_a_redirect_to_the_broker_that_has_the_topic_is_followed() -> None:
    with serving(Broker()) as owner, serving(Broker(owner)) as other:
        options = PulsarOptions(url="pulsar://nowhere", admin_url=other.url, token="secret")
        asyncio.run(Admin(options).move_cursor(NAME, "group", 4, 7, after=False))
        path = "/admin/v2/persistent/public/default/orders/subscription/group/resetcursor"
        body = {"ledgerId": 4, "entryId": 7, "partitionIndex": -1, "excluded": False}
        assert owner.requests == [("POST", path, body, "Bearer secret")]


@contextmanager
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_admin_api_that_does_not_answer_does_not_hold_up_the_client_library() -> None:
    async def body(url: str) -> None:
        broker = PulsarBroker(PulsarOptions(url="pulsar://127.0.0.1:1", admin_url=url, timeout=Seconds(2.0)))
        requests = [asyncio.create_task(broker.admin.topic_state(NAME)) for _ in range(50)]
        await asyncio.sleep(0)
        async with asyncio.timeout(1.5):
            assert await broker.client.run("receive", lambda: "received") == "received"
        assert not any(one.done() for one in requests)
        await asyncio.gather(*requests, return_exceptions=True)
        await broker.close()

    with silent() as url:
        asyncio.run(body(url))


def test_many_requests_that_time_out_take_no_longer_than_a_few() -> None:
    async def body(url: str) -> None:
        admin = Admin(PulsarOptions(url="pulsar://nowhere", admin_url=url, timeout=Seconds(1.0)))
        begun = time.monotonic()
        answers = await asyncio.gather(*(admin.topic_state(NAME) for _ in range(100)), return_exceptions=True)
        assert all(isinstance(one, Unavailable) for one in answers)
        # In four threads, one after the other, they would take 25 seconds.
        assert time.monotonic() - begun < 8
        # A later request is sent again.
        with pytest.raises(Unavailable, match="timed out"):
            await admin.topic_state(NAME)
        admin.close()

    with silent() as url:
        asyncio.run(body(url))


#: from Pulsar 4.2.4: a consumer that keeps a key from others by mistake, one that does so rightly, and others
STATS = {
    "subscriptions": {
        "group": {
            "msgBacklog": 9,
            "consumers": [
                {"consumerName": "stuck", "unackedMessages": 0, "drainingHashes": [{"hash": 51404, "unackMsgs": 1}]},
                {"consumerName": "at-work", "unackedMessages": 2, "drainingHashes": [{"hash": 7, "unackMsgs": 2}]},
                {"consumerName": "free", "unackedMessages": 0, "drainingHashes": []},
                {"consumerName": "of-pulsar-3", "unackedMessages": 0},
            ],
        }
    }
}


class AnsweringAdmin(Admin):
    async def _request(self, *request: object, **more: object) -> Any:
        return STATS


def test_consumers_that_keep_keys_back_without_unacked_messages_are_reported() -> None:
    admin = AnsweringAdmin(PulsarOptions(url="pulsar://nowhere"))
    found = asyncio.run(admin.subscription_stats("persistent://public/default/orders", "group"))
    assert found is not None
    assert (found.backlog, found.deadlocks) == (9, {("stuck", 51404)})

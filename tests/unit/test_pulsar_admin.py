"""The admin API of Pulsar: who is asked."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.options import PulsarOptions

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


async def _run(doing: str, call: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(call, *arguments)


def test_a_broker_that_does_not_have_the_topic_says_who_has_it_and_that_one_is_asked() -> None:
    with serving(Broker()) as owner, serving(Broker(owner)) as other:
        options = PulsarOptions(url="pulsar://nowhere", admin_url=other.url, token="secret")
        library: Any = SimpleNamespace(run=_run)
        asyncio.run(Admin(options, library).move(NAME, "group", 4, 7, after=False))
        path = "/admin/v2/persistent/public/default/orders/subscription/group/resetcursor"
        body = {"ledgerId": 4, "entryId": 7, "partitionIndex": -1, "excluded": False}
        assert owner.asked == [("POST", path, body, "Bearer secret")]

"""The small HTTP server behind probes and metrics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from sidecar.model.errors import StartError
from sidecar.server import http
from sidecar.server.http import HttpServer, Response, Route
from tests.unit.server.grpc.service_kit import in_loop


def broken() -> Response:
    raise RuntimeError("nobody foresaw this")


@asynccontextmanager
async def serving(**routes: Route) -> AsyncIterator[str]:
    server = HttpServer("127.0.0.1:0", {f"/{path}": route for path, route in routes.items()})
    try:
        yield await server.start()
    finally:
        await server.stop()


async def exchange(address: str, request: bytes) -> bytes:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def ask(address: str, line: str) -> tuple[int, bytes, bytes]:
    """Status, headers, body."""
    answer = await exchange(address, f"{line}\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


@in_loop
async def test_a_page_is_served_with_its_type_and_length() -> None:
    async with serving(page=lambda: Response("häh\n", content_type="text/plain; charset=utf-8")) as address:
        status, head, text = await ask(address, "GET /page?x=1 HTTP/1.1")
        assert (status, text) == (200, "häh\n".encode())
        assert b"Content-Length: 5" in head
        assert b"Content-Type: text/plain" in head


@in_loop
async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with serving(page=lambda: Response("text")) as address:
        status, head, text = await ask(address, "HEAD /page HTTP/1.0")
        assert (status, text) == (200, b"")
        assert b"Content-Length: 4" in head


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /other HTTP/1.1", 404),
        ("GET / HTTP/1.1", 404),
        ("POST /page HTTP/1.1", 405),
        ("DELETE /page HTTP/1.1", 405),
        ("GET /broken HTTP/1.1", 500),
        ("GET /page", 400),
        ("PRI * HTTP/2.0", 400),
        ("\x16\x03\x01 hello", 400),
        ("GET /page HTTP/1.1\r\nX: " + "y" * 20_000, 431),
    ],
)
@in_loop
async def test_everything_else_gets_a_clear_status(line: str, status: int) -> None:
    async with serving(page=lambda: Response("text"), broken=broken) as address:
        assert (await ask(address, line))[0] == status
        assert (await ask(address, "GET /page HTTP/1.1"))[0] == 200


@in_loop
async def test_a_page_that_is_not_there_names_those_that_are() -> None:
    async with serving(healthz=lambda: Response("ok")) as address:
        assert b"/healthz" in (await ask(address, "GET /health HTTP/1.1"))[2]


@in_loop
async def test_a_status_other_than_ok_is_passed_on() -> None:
    async with serving(page=lambda: Response("no", HTTPStatus.SERVICE_UNAVAILABLE)) as address:
        assert (await ask(address, "GET /page HTTP/1.1"))[0] == 503


@in_loop
async def test_a_client_that_sends_nothing_is_let_go_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_REQUEST_TIMEOUT", 1.0)

    async with serving(page=lambda: Response("text")) as address:
        silent = asyncio.create_task(exchange(address, b"GET /page HT"))
        assert (await ask(address, "GET /page HTTP/1.1"))[0] == 200
        assert await silent == b""


@in_loop
async def test_whoever_asks_nothing_gives_way_to_whoever_asks_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_MAX_CONNECTIONS", 3)

    async with serving(page=lambda: Response("text")) as address:
        host, port = address.split(":")
        (oldest, first), *others = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        assert (await ask(address, "GET /page HTTP/1.1"))[0] == 200
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                assert await oldest.read() == b""
        for reader, writer in others:
            writer.write(b"GET /page HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
        first.close()


@in_loop
async def test_whoever_has_asked_is_answered_before_others_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MAX_CONNECTIONS", 3)

    asked, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow() -> Response:
        asked.release()
        await go_on.wait()
        return Response("text")

    async with serving(page=slow) as address:
        calls = [asyncio.create_task(ask(address, "GET /page HTTP/1.1")) for _ in range(3)]
        for _ in calls:
            await asked.acquire()
        with pytest.raises((ConnectionError, IndexError)):
            await ask(address, "GET /page HTTP/1.1")
        go_on.set()
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200, 200, 200]


@in_loop
async def test_a_port_in_use_is_refused_with_the_setting_and_the_holder() -> None:
    async with serving(page=lambda: Response("text")) as address:
        with pytest.raises(StartError, match=rf"http.address: {address} is in use by process \d+"):
            await HttpServer(address, {}).start()


@in_loop
async def test_an_address_that_is_not_here_is_refused() -> None:
    with pytest.raises(StartError, match=r"http.address: 192.0.2.1:80"):
        await HttpServer("192.0.2.1:80", {}).start()

"""A client that does nothing at all while it works, as a PHP process does: it does not even answer pings."""

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from offramp.v1 import consumer_pb2, record_pb2
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker

LONG = bool(os.environ.get("OFFRAMP_TEST_LONG"))
#: seconds; gRPC gives an answer to a ping one minute
BLOCKED = 100.0 if LONG else 1.0

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_HEADERS, INITIAL_WINDOW_SIZE = 1, 4, 4


class BareClient:
    """HTTP/2 by hand: what it does not do, nobody does for it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(WAIT_TIMEOUT)
        self._socket.connect(str(path))
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        # Windows so large that none is ever used up: it does not answer anything, nor grant more.
        self._send(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 1 << 30))
        self._send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/offramp.v1.ConsumerService/Consume",
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        # Literal headers that go into no table.
        block = b"".join(
            b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in headers.items()
        )
        self._send(HEADERS, END_HEADERS, 1, block)
        self.pings = 0
        self._buffer = b""

    def say(self, request: consumer_pb2.ConsumeRequest) -> None:
        message = request.SerializeToString()
        self._send(DATA, 0, 1, struct.pack(">BI", 0, len(message)) + message)

    def responses(self) -> Iterator[consumer_pb2.ConsumeResponse]:
        """What arrives, for as long as somebody asks; settings are acknowledged, pings are counted and not answered."""
        body = b""
        while True:
            length, kind, flags = (*struct.unpack(">I", b"\0" + self._take(3)), *self._take(2))
            self._take(4)
            payload = self._take(length)
            assert kind not in (GOAWAY, RST_STREAM), payload
            if kind == SETTINGS and not flags & ACK:
                self._send(SETTINGS, ACK, 0, b"")
            if kind == PING and not flags & ACK:
                self.pings += 1
            if kind == DATA:
                body += payload
                while len(body) >= 5 and len(body) >= 5 + (size := struct.unpack(">I", body[1:5])[0]):
                    yield consumer_pb2.ConsumeResponse.FromString(body[5 : 5 + size])
                    body = body[5 + size :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
        self._socket.sendall(head + payload)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            more = self._socket.recv(1 << 16)
            assert more, "the sidecar closed the connection"
            self._buffer += more
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken


def test_the_sidecar_never_asks_a_busy_client_for_a_sign_of_life(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, BareClient(sidecar.socket) as client:
        sidecar.publish("orders", [b"1"])
        credit = consumer_pb2.Credit(batches=1)
        client.say(consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription="orders", credit=credit)))
        responses = client.responses()
        batch = next(batch for response in responses for batch in response.batches)
        # Much data from the client is what makes gRPC measure the line, which it does by pings.
        nonsense = [record_pb2.Settlement(lease=bytes(16), outcome=record_pb2.OUTCOME_ACK)] * 100
        for _ in range(20):
            client.say(consumer_pb2.ConsumeRequest(settlements=nonsense))
        time.sleep(BLOCKED)
        done = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
        client.say(consumer_pb2.ConsumeRequest(settlements=[done]))
        result = next(result for response in responses for result in response.results if result.lease == batch.lease)
        assert result.status == record_pb2.SETTLE_STATUS_SETTLED
        assert client.pings == 0


def test_a_worker_process_that_was_stopped_finds_its_connection_alive(tmp_path: Path) -> None:
    with Sidecar(tmp_path) as sidecar, Worker(sidecar, "settle") as worker:
        sidecar.publish("orders", [b"1"])
        worker.event("welcome")
        worker.event("batch")
        worker.signal(signal.SIGSTOP)
        sidecar.publish("orders", [b"2"])
        time.sleep(BLOCKED)
        assert sidecar.status().leases == 1
        worker.signal(signal.SIGCONT)
        worker.tell()
        assert worker.event("result")["status"] == record_pb2.SETTLE_STATUS_SETTLED
        assert worker.event("batch")["values"] == ["2"]

"""What is done to a sidecar: on a bare socket, by unary calls, on the Consume stream.

An attack reports what was wrong with what it saw: a call that hung, or a response that only a bug of the sidecar
explains. It never asks for what belongs to the control client.
"""

import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message

from offramp.v1 import admin_pb2, consumer_pb2, publish_pb2, record_pb2
from tests.e2e.calls import METHODS, call, request_class
from tests.fuzz import garbage
from tests.fuzz.messages import Hints, fill
from tests.fuzz.responses import Reader, Response

#: the subscription that is attacked, and its topic
TARGET = "target"
#: seconds within which a call that does not ask to wait must return, on a busy machine
_CALL_TIMEOUT = 20.0
#: seconds that an attack waits for a response that need not come, or that never ends
_READ_FOR = 0.3
#: characters of the sent bytes that a problem shows
_SHOWN = 2000
#: statuses that are not the client's fault
_WRONG = frozenset((grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS))
_WRONG_NUMBERS = frozenset(code.value[0] for code in _WRONG)
#: what gRPC itself rightly says about bytes that are not HTTP/2, or not compressed as they claim
_BY_GRPC = ("Failed parsing HTTP/2", "Compression bit set", "Error parsing '")


@dataclass
class Findings:
    """What was seen of the sidecar: used again, so that attacks get further than the first check."""

    leases: list[bytes] = field(default_factory=list)
    sessions: list[bytes] = field(default_factory=list)
    #: by status
    responses: Counter[str] = field(default_factory=Counter)
    #: problems
    problems: list[str] = field(default_factory=list)
    #: called with what is about to be sent, so that it is known if the sidecar does not survive it
    tell: Callable[[str], None] = lambda _: None

    def hints(self) -> Hints:
        return {
            "subscription": [TARGET, TARGET, TARGET, "nobody", ""],
            "topic": [TARGET, TARGET, "nothing"],
            "topics": [TARGET],
            "broker": ["local", "local", "nothing", ""],
            "group": [TARGET, "nobody"],
            "lease": self.leases[-20:],
            "session": self.sessions[-5:],
            "seq": [0, 1, 1, 2, 3],
            "wait_ms": [0, 1, 50],
            "lane": [0, 1, 99],
            "first": [0, 1, 5],
            "count": [0, 1, 2, 1 << 31],
            "position": [0, 1, 5],
            "batches": [0, 1, 2],
            "ids": [f"{TARGET}/0/0", "nothing"],
        }

    def keep(self, list_: list[bytes], *found: bytes) -> None:
        list_.extend(found)
        del list_[:-50]


AttackKind = Callable[[random.Random, str, Findings], None]


def on_a_socket(chance: random.Random, target: str, findings: Findings) -> None:
    """Bytes, in pieces, and then silence, a goodbye or none."""
    kind = chance.choice(garbage.KINDS)
    pieces = [*kind(chance)]
    says_goodbye = chance.random() < 0.3
    sent = f"{kind.__name__}{' and a goodbye' if says_goodbye else ''}: {b''.join(pieces).hex()}"
    findings.tell(sent)
    asks = says_goodbye or (kind is garbage.bad_messages and garbage.asks(pieces))
    response = _send(target, pieces, says_goodbye=says_goodbye, timeout=_CALL_TIMEOUT if asks else _READ_FOR)
    findings.responses[f"socket: {kind.__name__}: {_summary(response)}"] += 1
    for code, message in response.statuses:
        if code in _WRONG_NUMBERS and not message.startswith(_BY_GRPC):
            findings.problems.append(f"a socket got status {code} ({message}) for {sent[:_SHOWN]}")
    if asks and not response.is_clear:
        findings.problems.append(f"a socket got no response within {_CALL_TIMEOUT:g} s, for {sent[:_SHOWN]}")


def _send(target: str, pieces: list[bytes], *, says_goodbye: bool, timeout: float) -> Response:
    """What came back, until it is clear or there is no more timeout."""
    reader = Reader()
    ends = time.monotonic() + timeout
    with _connected(target) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            if says_goodbye:
                connection.shutdown(socket.SHUT_WR)
            while (left := ends - time.monotonic()) > 0 and not reader.response.is_clear:
                connection.settimeout(left)
                if not (piece := connection.recv(65536)):
                    reader.response.closed = True
                reader.feed(piece)
        except TimeoutError:
            pass
        except OSError:
            # It was reset: the other side does not take the rest.
            reader.response.closed = True
    return reader.response


def _summary(response: Response) -> str:
    if response.statuses:
        return f"status {response.statuses[-1].code}"
    return "refused" if response.refused else "closed" if response.closed else "silence"


@contextlib.contextmanager
def _connected(target: str) -> Iterator[socket.socket]:
    if target.startswith("unix:"):
        connection, address = socket.socket(socket.AF_UNIX), target.removeprefix("unix:")
        connection.settimeout(_CALL_TIMEOUT)
        connection.connect(address)
    else:
        host, _, port = target.rpartition(":")
        connection = socket.create_connection((host, int(port)), _CALL_TIMEOUT)
    with connection:
        yield connection


_STREAMS = [name for name, method in METHODS.items() if method.server_streaming and not method.client_streaming]
#: the one that gives leases more often than the others
_UNARY = ["Fetch", *(name for name, method in METHODS.items() if not method.server_streaming)]
#: they go on until somebody leaves
_ENDLESS = frozenset(("Open", "WatchStatus"))


def by_unary_calls(chance: random.Random, target: str, findings: Findings) -> None:
    """Sends random unary calls."""
    with _channel(target) as channel:
        for _ in range(chance.randrange(1, 20)):
            method = chance.choice(_UNARY)
            request: Any = fill(chance, request_class(method), findings.hints())
            if method == "Fetch":
                # A call that asks for a long wait gets it.
                request.wait_ms = min(request.wait_ms, 50)
            findings.tell(_told(method, request))
            try:
                response = call(channel, method, request, _CALL_TIMEOUT)
            except grpc.RpcError as error:
                _judge(findings, method, request, error)
            else:
                findings.responses[f"{method}: OK"] += 1
                if method == "Fetch":
                    findings.keep(findings.leases, *(batch.lease for batch in response.batches))


def by_streams(chance: random.Random, target: str, findings: Findings) -> None:
    """Responses that come in pieces. Those that never end are read for a moment and left."""
    with _channel(target) as channel:
        method = chance.choice(_STREAMS)
        request = fill(chance, request_class(method), findings.hints())
        findings.tell(_told(method, request))
        responses = call(channel, method, request, _CALL_TIMEOUT)
        try:
            for response in responses:
                findings.responses[f"{method}: OK"] += 1
                if method == "Open":
                    findings.keep(findings.sessions, response.welcome.session)
                if method in _ENDLESS:
                    # Others may use the session for a while.
                    time.sleep(_READ_FOR)
                    responses.cancel()
                    break
        except grpc.RpcError as error:
            _judge(findings, method, request, error)


def on_the_consume_stream(chance: random.Random, target: str, findings: Findings) -> None:
    """Random requests in random order: most begin with a hello that could be meant. A stream whose client has said
    its last word ends."""
    requests = [fill(chance, consumer_pb2.ConsumeRequest, findings.hints()) for _ in range(chance.randrange(1, 15))]
    if chance.random() < 0.8:
        credit = consumer_pb2.Credit(batches=chance.choice((1, 3, 100)))
        requests.insert(0, consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription=TARGET, credit=credit)))
    findings.tell(_told("Consume", *requests))
    with _channel(target) as channel:
        responses = call(channel, "Consume", _unhurried(requests), _CALL_TIMEOUT)
        try:
            for response in responses:
                findings.responses["Consume: OK"] += 1
                findings.keep(findings.leases, *(batch.lease for batch in response.batches))
                if response.HasField("welcome"):
                    findings.keep(findings.sessions, response.welcome.session)
        except grpc.RpcError as error:
            _judge(findings, "Consume", requests, error)


def _unhurried(requests: list[consumer_pb2.ConsumeRequest]) -> Iterator[consumer_pb2.ConsumeRequest]:
    """With a moment before the end in which batches may come."""
    yield from requests
    time.sleep(_READ_FOR)


def publish_targets(chance: random.Random, target: str, findings: Findings) -> None:
    """There is something to consume, and the subscription does, whatever was done to it."""
    messages = [publish_pb2.Message(value=b"%d" % chance.randrange(1000)) for _ in range(20)]
    with _channel(target) as channel:
        publish = publish_pb2.PublishRequest(broker="local", topic=TARGET, messages=messages)
        call(channel, "Publish", publish, _CALL_TIMEOUT)
        call(channel, "Resume", admin_pb2.ResumeRequest(subscription=TARGET), _CALL_TIMEOUT)
        fetch = consumer_pb2.FetchRequest(subscription=TARGET, wait_ms=50)
        batches = call(channel, "Fetch", fetch, _CALL_TIMEOUT).batches
        findings.keep(findings.leases, *(batch.lease for batch in batches))
        done = [record_pb2.Settlement(lease=b.lease, outcome=record_pb2.OUTCOME_ACK) for b in batches[:1]]
        call(channel, "Settle", consumer_pb2.SettleRequest(settlements=done), _CALL_TIMEOUT)


ATTACKS: tuple[AttackKind, ...] = (on_a_socket, on_a_socket, by_unary_calls, by_streams, on_the_consume_stream)


@contextlib.contextmanager
def _channel(target: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def _judge(findings: Findings, method: str, request: Any, error: grpc.RpcError) -> None:
    code = error.code()
    findings.responses[f"{method}: {code.name}"] += 1
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        findings.problems.append(f"{method} did not return within {_CALL_TIMEOUT:g} s: {str(request)[:_SHOWN]}")
    elif code in _WRONG or (code is grpc.StatusCode.INVALID_ARGUMENT and not error.details()):
        findings.problems.append(f"{method} returned {code.name} ({error.details()}) for {str(request)[:_SHOWN]}")


def _told(method: str, *requests: Message) -> str:
    return f"{method}: {' '.join(request.SerializeToString().hex() for request in requests)}"

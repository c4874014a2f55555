"""Sessions that outlive their connection: nobody else gets them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

import offramp
from offramp.v1 import consumer_pb2, consumer_pb2_grpc, publish_pb2, publish_pb2_grpc
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.security.kit import TOKENS, Secured, status

#: milliseconds that no test waits for
LONG = 60_000


def secured_by(folder: Path) -> Secured:
    return Secured(
        folder,
        app={"consume": ["orders"], "publish": ["orders"]},
        spark={"consume": ["orders"]},
        operator={"admin": "*"},
    )


@contextmanager
def opened(channel: grpc.Channel, **request: object) -> Iterator[consumer_pb2.Welcome]:
    """A session, for as long as the context."""
    stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
    call = stub.Open(consumer_pb2.OpenRequest(subscription="orders", resume_ms=LONG, **request))
    try:
        yield next(call).welcome
    finally:
        call.cancel()


def lose_a_session(secured: Secured, sidecar: Sidecar) -> bytes:
    """A session of the client `app` that holds a batch and has lost its connection."""
    with secured.channel(sidecar, "app") as channel, opened(channel) as welcome:
        assert welcome.resume_ms == LONG
        message = publish_pb2.Message(value=b"secret")
        request = publish_pb2.PublishRequest(subscription="orders", topic="orders", messages=[message])
        publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
        fetch = consumer_pb2.FetchRequest(session=welcome.session, seq=1, wait_ms=LONG)
        answer = consumer_pb2_grpc.ConsumerServiceStub(channel).Fetch(fetch, timeout=WAIT_TIMEOUT)
        assert answer.batches
    with secured.channel(sidecar, "operator") as channel:
        eventually(lambda: any(one.away_ms for one in status(channel, "orders").subscriptions[0].sessions))
    session: bytes = welcome.session
    return session


def test_a_session_is_resumed_only_by_the_client_that_had_it(tmp_path: Path) -> None:
    secured = secured_by(tmp_path)
    with secured.sidecar() as sidecar:
        session = lose_a_session(secured, sidecar)
        with secured.channel(sidecar, "spark") as channel, opened(channel, resume=session) as welcome:
            assert welcome.session != session
        with secured.channel(sidecar, "app") as channel, opened(channel, resume=session) as welcome:
            assert welcome.session == session


def test_a_session_is_not_resumed_at_the_socket_even_with_its_token(tmp_path: Path) -> None:
    secured = secured_by(tmp_path)
    with secured.sidecar() as sidecar:
        session = lose_a_session(secured, sidecar)
        with (
            offramp.open_channel(address=sidecar.target, token=TOKENS["app"]) as channel,
            opened(channel, resume=session) as welcome,
        ):
            assert welcome.session != session
            assert not welcome.resume_ms


def test_a_client_whose_token_was_replaced_resumes_its_session(tmp_path: Path) -> None:
    secured = secured_by(tmp_path)
    secured.token_file("app", TOKENS["app"], TOKENS["nobody"])
    with secured.sidecar() as sidecar:
        session = lose_a_session(secured, sidecar)
        with (
            secured.channel(sidecar, token=TOKENS["nobody"]) as channel,
            opened(channel, resume=session) as welcome,
        ):
            assert welcome.session == session


def test_a_session_whose_token_is_taken_away_is_not_waited_for(tmp_path: Path) -> None:
    secured = secured_by(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar, "app") as channel, opened(channel) as welcome:
        message = publish_pb2.Message(value=b"secret")
        request = publish_pb2.PublishRequest(subscription="orders", topic="orders", messages=[message])
        publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
        fetch = consumer_pb2.FetchRequest(session=welcome.session, seq=1, wait_ms=LONG)
        assert consumer_pb2_grpc.ConsumerServiceStub(channel).Fetch(fetch, timeout=WAIT_TIMEOUT).batches
        secured.token_file("app", TOKENS["nobody"])
        with secured.channel(sidecar, "operator") as operator:
            eventually(lambda: status(operator, "orders").subscriptions[0].counters.abandoned == 1)
            assert not status(operator, "orders").subscriptions[0].sessions

"""What a caller may do, by subscription. Each right is tried by a caller that lacks it."""

import json
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import offramp
from offramp.v1 import admin_pb2, consumer_pb2, consumer_pb2_grpc, publish_pb2, record_pb2
from tests.e2e.calls import METHODS, call, request_class
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.security.kit import TOKENS, Secured, fetch, status
from tests.security.test_network import offramp_command

TWO = {"orders": {"topics": ["orders"]}, "payments": {"topics": ["payments"]}}


class Case(NamedTuple):
    """The right that a call needs, and what its request has beside the subscription."""

    right: str
    fields: Mapping[str, Any] = {}
    #: it concerns the whole sidecar, and its request names no subscription
    whole: bool = False


MESSAGE = {"topic": "x", "messages": [publish_pb2.Message()]}
#: every call of every service; some in two ways, by another word after the name
CALLS = {
    "Consume": Case("consume"),
    "Open": Case("consume"),
    "Fetch": Case("consume"),
    "Publish": Case("publish", MESSAGE),
    "Publish to a broker": Case("publish", {"broker": "local", **MESSAGE}, whole=True),
    "GetLimits": Case("publish"),
    "GetStatus": Case("admin"),
    "GetStatus of all": Case("admin", whole=True),
    "WatchStatus": Case("admin"),
    "Pause": Case("admin"),
    "Resume": Case("admin"),
    "Seek": Case("admin", {"start": admin_pb2.SeekStart()}),
    "ListDeadLetters": Case("admin"),
    "Redrive": Case("admin", {"all": True}),
    "DeleteDeadLetters": Case("admin", {"all": True}),
    "DeleteGroup": Case("admin", {"broker": "local", "group": "orders"}, whole=True),
    **dict.fromkeys(("Attach", "ResolveStart", "Locate", "Plan", "ReadRange", "CommitUpTo"), Case("ranges")),
}


def do(channel: grpc.Channel, name: str, subscription: str) -> Any:
    """Makes a call. Returns its first response."""
    case, method = CALLS[name], name.split(maxsplit=1)[0]
    fields = {**case.fields, **({} if case.whole else {"subscription": subscription})}
    if method == "Consume":
        hello = consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(**fields))
        return next(call(channel, method, iter([hello]), WAIT_TIMEOUT))
    answer = call(channel, method, request_class(method)(**fields), WAIT_TIMEOUT)
    return next(answer, None) if METHODS[method].server_streaming else answer


RIGHTS = ("consume", "publish", "ranges", "admin")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Sidecar]]:
    """A sidecar with two subscriptions and, for each right, a client that has it for orders alone, and one that has all
    but this one."""
    folder = tmp_path_factory.mktemp("rights")
    clients: dict[str, Any] = {}
    for right in RIGHTS:
        clients[f"only-{right}"] = {right: ["orders"]}
        clients[f"all-but-{right}"] = {other: "*" for other in RIGHTS if other != right}
    TOKENS.update({name: f"{name}-0123456789abcdef" for name in clients})
    secured = Secured(folder, **clients)
    with secured.sidecar(subscriptions=TWO) as sidecar:
        yield secured, sidecar


def denial(call: Callable[[], Any]) -> str:
    """The text with which a call is denied; empty if it is not denied, whatever its result."""
    try:
        call()
    except grpc.RpcError as error:
        return error.details() if error.code() is grpc.StatusCode.PERMISSION_DENIED else ""
    return ""


@pytest.mark.parametrize("name", CALLS)
def test_every_call_needs_its_right(stage: tuple[Secured, Sidecar], name: str) -> None:
    secured, sidecar = stage
    right, _, whole = CALLS[name]
    with secured.channel(sidecar, f"all-but-{right}") as channel:
        denied = denial(lambda: do(channel, name, "orders"))
    which = "every subscription" if whole else 'subscription "orders"'
    assert f"lacks the right {right} for {which}" in denied


@pytest.mark.parametrize("name", CALLS)
def test_a_right_is_for_the_subscriptions_that_it_names(stage: tuple[Secured, Sidecar], name: str) -> None:
    secured, sidecar = stage
    right, _, whole = CALLS[name]
    with secured.channel(sidecar, f"only-{right}") as channel:
        assert f"lacks the right {right}" in denial(lambda: do(channel, name, "payments"))
        if not whole:
            assert denial(lambda: do(channel, name, "orders")) == ""


def test_all_calls_of_the_protocol_are_in_this_table() -> None:
    """A new call needs a right, and a test that tries it without."""
    # These two are tried below.
    assert METHODS.keys() - CALLS.keys() == {"Settle", "ExtendLease"}


def test_a_lease_is_no_proof_of_a_right(stage: tuple[Secured, Sidecar]) -> None:
    """Leases are counted, so one can be guessed from another. Guessing one of another subscription is of no use."""
    secured, sidecar = stage
    sidecar.publish("payments", [b"1"])
    with secured.channel(sidecar, "all-but-publish") as theirs, secured.channel(sidecar, "only-consume") as channel:
        (batch,) = fetch(theirs, "payments", wait_ms=20_000).batches
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        settlement = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_ACK)
        extension = record_pb2.Extension(lease=batch.lease, lease_for_ms=1_000)
        hello = consumer_pb2.Hello(subscription="orders")
        first = consumer_pb2.ConsumeRequest(hello=hello, settlements=[settlement])
        for attempt in (
            lambda: stub.Settle(consumer_pb2.SettleRequest(settlements=[settlement])),
            lambda: stub.ExtendLease(consumer_pb2.ExtendLeaseRequest(extensions=[extension])),
            lambda: stub.Fetch(consumer_pb2.FetchRequest(subscription="orders", settlements=[settlement])),
            lambda: list(stub.Consume(iter([first]))),
        ):
            assert 'lacks the right consume for subscription "payments"' in denial(attempt)
        assert sidecar.status("payments").counters.acked == 0
        mine = consumer_pb2_grpc.ConsumerServiceStub(theirs)
        (result,) = mine.Settle(consumer_pb2.SettleRequest(settlements=[settlement]), timeout=WAIT_TIMEOUT).results
        assert result.status == record_pb2.SETTLE_STATUS_SETTLED


def test_a_session_is_no_proof_of_a_right(stage: tuple[Secured, Sidecar]) -> None:
    secured, sidecar = stage
    with secured.channel(sidecar, "all-but-publish") as theirs, secured.channel(sidecar, "only-consume") as channel:
        stream = consumer_pb2_grpc.ConsumerServiceStub(theirs).Open(consumer_pb2.OpenRequest(subscription="payments"))
        session = next(stream).welcome.session
        request = consumer_pb2.FetchRequest(session=session, seq=1)
        stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
        assert 'lacks the right consume for subscription "payments"' in denial(lambda: stub.Fetch(request))
        stream.cancel()


def test_names_of_other_subscriptions_are_not_told(stage: tuple[Secured, Sidecar]) -> None:
    secured, sidecar = stage
    with secured.channel(sidecar, "only-consume") as channel:
        assert "payments" not in denial(lambda: fetch(channel, "guess"))
        with pytest.raises(grpc.RpcError) as raised:
            fetch(channel, "")
        assert "orders" in raised.value.details()
        assert "payments" not in raised.value.details()


def test_health_does_not_tell_which_subscriptions_there_are(stage: tuple[Secured, Sidecar]) -> None:
    """Not to strangers, who hear of the sidecar as a whole whatever they ask, nor to those who have no right to one."""
    secured, sidecar = stage

    def check(channel: grpc.Channel, subscription: str) -> tuple[Any, str]:
        request = health_pb2.HealthCheckRequest(service=f"subscription/{subscription}")
        try:
            return health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_TIMEOUT).status, ""
        except grpc.RpcError as error:
            return error.code(), error.details().replace(subscription, "...")

    def watched(channel: grpc.Channel, subscription: str) -> Any:
        request = health_pb2.HealthCheckRequest(service=f"subscription/{subscription}")
        return next(health_pb2_grpc.HealthStub(channel).Watch(request, timeout=WAIT_TIMEOUT)).status

    serving = health_pb2.HealthCheckResponse.SERVING
    with secured.channel(sidecar, "only-publish") as channel:
        assert check(channel, "orders") == (serving, "")
        assert check(channel, "payments") == check(channel, "guess")
        assert check(channel, "payments")[0] is grpc.StatusCode.NOT_FOUND
        assert watched(channel, "orders") == serving
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert (watched(channel, "payments"), watched(channel, "guess")) == (unknown, unknown)
    with secured.channel(sidecar) as channel:
        assert check(channel, "payments") == check(channel, "guess") == (serving, "")


def test_admin_calls_can_be_switched_off_for_apps_while_operators_keep_a_way(tmp_path: Path) -> None:
    folder = tmp_path / "operators"
    admin_socket = folder / "a.sock"
    listen = {"rights": ["consume", "publish"], "admin_socket": str(admin_socket)}
    sidecar = Sidecar(tmp_path, listen=listen)
    with sidecar:
        with offramp.open_channel(sidecar.target) as channel:
            assert not fetch(channel).batches
            assert "lacks the right admin" in denial(lambda: status(channel))
            assert "lacks the right admin" in denial(lambda: do(channel, "Pause", "orders"))
        assert stat.S_IMODE(admin_socket.stat().st_mode) == 0o600
        with offramp.open_channel(f"unix:{admin_socket}") as channel:
            assert status(channel).subscriptions[0].name == "orders"
        # The command finds the operators' socket by the configuration.
        done = offramp_command("status", "--json", "-c", str(tmp_path / "offramp.yaml"))
        assert json.loads(done.stdout)["subscriptions"][0]["name"] == "orders", done.stderr
    assert not admin_socket.exists()


def test_a_token_gives_its_rights_on_the_socket_too(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar(listen={"rights": ["consume"]}) as sidecar:
        with offramp.open_channel(sidecar.target) as channel:
            assert "lacks the right admin" in denial(lambda: status(channel))
        with offramp.open_channel(sidecar.target, token=TOKENS["operator"]) as channel:
            assert status(channel).version
            assert "lacks the right consume" in denial(lambda: fetch(channel))


def publish_to(channel: grpc.Channel, topic: str) -> Any:
    request = publish_pb2.PublishRequest(subscription="orders", topic=topic, messages=[publish_pb2.Message()])
    return call(channel, "Publish", request, WAIT_TIMEOUT)


def test_the_right_to_publish_can_be_for_some_topics_only(tmp_path: Path) -> None:
    secured = Secured(
        tmp_path,
        app={"publish": ["orders"], "publish_topics": ["invoices", "reminders"]},
        nobody={"publish": "*", "publish_topics": []},
        spark={"publish": ["orders"]},
    )
    with secured.sidecar(listen=secured.listen(publish_topics=["carts"])) as sidecar:
        allowed = {"app": "invoices, reminders", "nobody": "none"}
        for client, topics in allowed.items():
            with secured.channel(sidecar, client) as channel:
                said = denial(lambda channel=channel: publish_to(channel, "orders"))
                assert said == f'client "{client}" may not publish to topic "orders"; its publish_topics are: {topics}'
        with secured.channel(sidecar, "app") as channel:
            assert publish_to(channel, "invoices").published
        with secured.channel(sidecar, "spark") as channel:
            assert publish_to(channel, "orders").published
        with offramp.open_channel(sidecar.target) as channel:
            assert publish_to(channel, "carts").published
            assert 'may not publish to topic "orders"' in denial(lambda: publish_to(channel, "orders"))


def test_the_log_names_the_client_that_made_an_operators_call(tmp_path: Path) -> None:
    admin_socket = tmp_path / "operators" / "a.sock"
    secured = Secured(tmp_path, operator={"admin": "*"}, spark={"admin": ["orders"]})
    with secured.sidecar(listen=secured.listen(admin_socket=str(admin_socket))) as sidecar:
        sidecar.publish("orders", [b"1"])
        with secured.channel(sidecar, "operator") as channel:
            do(channel, "Pause", "orders")
        with secured.channel(sidecar, "spark") as channel:
            do(channel, "Resume", "orders")
        with offramp.open_channel(sidecar.target) as channel:
            do(channel, "Seek", "orders")
        with offramp.open_channel(f"unix:{admin_socket}") as channel:
            do(channel, "Redrive", "orders")
        callers = {event["message"]: event["caller"] for event in sidecar.events() if event["logger"] == "admin"}
        assert callers == {
            "paused by an operator": 'client "operator"',
            "resumed by an operator": 'client "spark"',
            "moved by an operator": "a caller of listen.socket without a token",
            "dead letters were sent back": "an operator at listen.admin_socket",
        }


def test_the_log_names_the_certificate_of_whoever_has_no_token(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    client = secured.authority.sign("carol")
    listen = secured.listen(mutual=True, certificate_rights=["admin"])
    mine = {"certificate": str(client.certificate), "key": str(client.key)}
    with secured.sidecar(listen=listen, clients={}) as sidecar, secured.channel(sidecar, **mine) as channel:
        do(channel, "Pause", "orders")
        who = sidecar.event("paused by an operator")["caller"]
        assert who == "a caller of listen.tcp without a token, certificate of carol, 127.0.0.1"

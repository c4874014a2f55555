"""What a caller may do, by subscription. Each right is tried by a caller that lacks it."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import offramp
from offramp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    publish_pb2,
    publish_pb2_grpc,
    record_pb2,
)
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar
from tests.security.kit import TOKENS, Secured, fetch, status
from tests.security.test_network import offramp_command

TWO = {"orders": {"topics": ["orders"]}, "payments": {"topics": ["payments"]}}

Call = Callable[[grpc.Channel, str], Any]


def publish(channel: grpc.Channel, subscription: str) -> Any:
    request = publish_pb2.PublishRequest(subscription=subscription, topic="x", messages=[publish_pb2.Message()])
    return publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)


def limits(channel: grpc.Channel, subscription: str) -> Any:
    request = publish_pb2.GetLimitsRequest(subscription=subscription)
    return publish_pb2_grpc.PublishServiceStub(channel).GetLimits(request, timeout=WAIT_TIMEOUT)


def publish_to_broker(channel: grpc.Channel, _: str) -> Any:
    request = publish_pb2.PublishRequest(broker="local", topic="x", messages=[publish_pb2.Message()])
    return publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)


def consume(channel: grpc.Channel, subscription: str) -> Any:
    hello = consumer_pb2.ConsumeRequest(hello=consumer_pb2.Hello(subscription=subscription))
    return next(consumer_pb2_grpc.ConsumerServiceStub(channel).Consume(iter([hello]), timeout=WAIT_TIMEOUT))


def open_session(channel: grpc.Channel, subscription: str) -> Any:
    request = consumer_pb2.OpenRequest(subscription=subscription)
    return next(consumer_pb2_grpc.ConsumerServiceStub(channel).Open(request, timeout=WAIT_TIMEOUT))


def pause(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.PauseRequest(subscription=subscription)
    return admin_pb2_grpc.AdminServiceStub(channel).Pause(request, timeout=WAIT_TIMEOUT)


def resume(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.ResumeRequest(subscription=subscription)
    return admin_pb2_grpc.AdminServiceStub(channel).Resume(request, timeout=WAIT_TIMEOUT)


def seek(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.SeekRequest(subscription=subscription, start=admin_pb2.SeekStart())
    return admin_pb2_grpc.AdminServiceStub(channel).Seek(request, timeout=WAIT_TIMEOUT)


def dead_letters(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.ListDeadLettersRequest(subscription=subscription)
    return list(admin_pb2_grpc.AdminServiceStub(channel).ListDeadLetters(request, timeout=WAIT_TIMEOUT))


def redrive(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.RedriveRequest(subscription=subscription, all=True)
    return admin_pb2_grpc.AdminServiceStub(channel).Redrive(request, timeout=WAIT_TIMEOUT)


def watch(channel: grpc.Channel, subscription: str) -> Any:
    request = admin_pb2.WatchStatusRequest(subscription=subscription)
    return next(admin_pb2_grpc.AdminServiceStub(channel).WatchStatus(request, timeout=WAIT_TIMEOUT))


def status_of_all(channel: grpc.Channel, _: str) -> Any:
    return status(channel)


def delete_group(channel: grpc.Channel, _: str) -> Any:
    request = admin_pb2.DeleteGroupRequest(broker="local", group="orders")
    return admin_pb2_grpc.AdminServiceStub(channel).DeleteGroup(request, timeout=WAIT_TIMEOUT)


def ranges(method: str, request: Any) -> Call:
    def call(channel: grpc.Channel, subscription: str) -> Any:
        answer = getattr(log_pb2_grpc.LogServiceStub(channel), method)(
            request(subscription=subscription), timeout=WAIT_TIMEOUT
        )
        return list(answer) if method == "ReadRange" else answer

    return call


#: every call of every service, the right it needs, and whether it concerns the whole sidecar
CALLS: dict[str, tuple[Call, str, bool]] = {
    "Consume": (consume, "consume", False),
    "Open": (open_session, "consume", False),
    "Fetch": (fetch, "consume", False),
    "Publish": (publish, "publish", False),
    "Publish to a broker": (publish_to_broker, "publish", True),
    "GetLimits": (limits, "publish", False),
    "GetStatus": (status, "admin", False),
    "GetStatus of all": (status_of_all, "admin", True),
    "WatchStatus": (watch, "admin", False),
    "Pause": (pause, "admin", False),
    "Resume": (resume, "admin", False),
    "Seek": (seek, "admin", False),
    "ListDeadLetters": (dead_letters, "admin", False),
    "Redrive": (redrive, "admin", False),
    "DeleteGroup": (delete_group, "admin", True),
    "Attach": (ranges("Attach", log_pb2.AttachRequest), "ranges", False),
    "ResolveStart": (ranges("ResolveStart", log_pb2.ResolveStartRequest), "ranges", False),
    "Locate": (ranges("Locate", log_pb2.LocateRequest), "ranges", False),
    "Plan": (ranges("Plan", log_pb2.PlanRequest), "ranges", False),
    "ReadRange": (ranges("ReadRange", log_pb2.ReadRangeRequest), "ranges", False),
    "CommitUpTo": (ranges("CommitUpTo", log_pb2.CommitUpToRequest), "ranges", False),
}
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
    call, right, whole = CALLS[name]
    with secured.channel(sidecar, f"all-but-{right}") as channel:
        denied = denial(lambda: call(channel, "orders"))
    which = "every subscription" if whole else 'subscription "orders"'
    assert f"lacks the right {right} for {which}" in denied


@pytest.mark.parametrize("name", CALLS)
def test_a_right_is_for_the_subscriptions_that_it_names(stage: tuple[Secured, Sidecar], name: str) -> None:
    secured, sidecar = stage
    call, right, whole = CALLS[name]
    with secured.channel(sidecar, f"only-{right}") as channel:
        assert f"lacks the right {right}" in denial(lambda: call(channel, "payments"))
        if not whole:
            assert denial(lambda: call(channel, "orders")) == ""


def test_all_calls_of_the_protocol_are_in_this_table() -> None:
    """A new call needs a right, and a test that tries it without."""
    methods = {
        method.name
        for file in (admin_pb2, consumer_pb2, log_pb2, publish_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    # These two are tried below.
    assert methods - set(CALLS) == {"Settle", "ExtendLease"}


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
        for attempt in (
            lambda: stub.Settle(consumer_pb2.SettleRequest(settlements=[settlement]), timeout=WAIT_TIMEOUT),
            lambda: stub.ExtendLease(consumer_pb2.ExtendLeaseRequest(extensions=[extension]), timeout=WAIT_TIMEOUT),
            lambda: stub.Fetch(
                consumer_pb2.FetchRequest(subscription="orders", settlements=[settlement]), timeout=WAIT_TIMEOUT
            ),
            lambda: list(
                stub.Consume(
                    iter([consumer_pb2.ConsumeRequest(hello=hello, settlements=[settlement])]), timeout=WAIT_TIMEOUT
                )
            ),
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
        assert 'lacks the right consume for subscription "payments"' in denial(
            lambda: stub.Fetch(request, timeout=WAIT_TIMEOUT)
        )
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


def publish_to(channel: grpc.Channel, topic: str) -> Any:
    request = publish_pb2.PublishRequest(subscription="orders", topic=topic, messages=[publish_pb2.Message()])
    return publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)


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
            pause(channel, "orders")
        with secured.channel(sidecar, "spark") as channel:
            resume(channel, "orders")
        with offramp.open_channel(sidecar.target) as channel:
            seek(channel, "orders")
        with offramp.open_channel(f"unix:{admin_socket}") as channel:
            redrive(channel, "orders")
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
        pause(channel, "orders")
        who = sidecar.event("paused by an operator")["caller"]
        assert who == "a caller of listen.tcp without a token, certificate of carol, 127.0.0.1"


def test_admin_calls_can_be_switched_off_for_apps_while_operators_keep_a_way(tmp_path: Path) -> None:
    folder = tmp_path / "operators"
    admin_socket = folder / "a.sock"
    listen = {"rights": ["consume", "publish"], "admin_socket": str(admin_socket)}
    sidecar = Sidecar(tmp_path, listen=listen)
    with sidecar:
        with offramp.open_channel(sidecar.target) as channel:
            assert not fetch(channel).batches
            assert "lacks the right admin" in denial(lambda: status(channel))
            assert "lacks the right admin" in denial(lambda: pause(channel, "orders"))
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

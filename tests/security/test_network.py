"""Over TCP beyond loopback: TLS and proof of identity, or nothing."""

import json
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import offramp
from offramp import errors
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.security.authority import Authority
from tests.security.kit import TOKENS, Secured, fetch, machine, secret_file, status, tcp_address


def refused(channel: grpc.Channel, **call: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        fetch(channel, **call)
    return raised.value


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (("tls_certificate", "tls_key"), "which requires TLS"),
        (("clients",), "which requires tokens (clients) or certificates of clients"),
    ],
)
def test_without_tls_and_a_proof_it_does_not_start_beyond_loopback(
    tmp_path: Path, lacks: tuple[str, ...], said: str
) -> None:
    secured = Secured(tmp_path)
    listen = {key: value for key, value in secured.listen().items() if key not in lacks}
    sidecar = secured.sidecar(listen=listen, clients={} if "clients" in lacks else None)
    sidecar.launch()
    assert sidecar.wait() == 1
    assert f"{machine()}:0" in sidecar.log
    assert said in sidecar.log


def test_a_client_with_a_token_consumes_and_publishes_over_tls(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        access = secured.access(sidecar, "app")
        with offramp.Publisher(subscription="orders", **access) as publisher:
            publisher.publish("orders", b"1")
        with offramp.connect("orders", **access) as consumer:
            batch = consumer.take(WAIT_TIMEOUT)
            assert batch is not None
            assert [record.value for record in batch] == [b"1"]
            batch.ack()
        eventually(lambda: sidecar.status().counters.acked == 1)


def test_a_caller_without_a_token_is_unauthenticated(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar) as channel:
        error = refused(channel)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "a token is required" in error.details()
        # Nor is anything waited for: this call never sends its request.
        silent: SimpleQueue[bytes] = SimpleQueue()
        with pytest.raises(grpc.RpcError) as raised:
            next(
                channel.stream_stream("/offramp.v1.ConsumerService/Consume")(
                    iter(silent.get, b""), timeout=WAIT_TIMEOUT
                )
            )
        silent.put(b"")
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with secured.channel(sidecar, "app") as mine:
            assert not fetch(mine).batches


@pytest.mark.parametrize("token", [TOKENS["nobody"], TOKENS["app"][:-1], TOKENS["app"] + "x", TOKENS["app"].upper()])
def test_a_caller_with_a_wrong_token_is_unauthenticated(tmp_path: Path, token: str) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar, token=token) as channel:
        error = refused(channel)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert error.details() == "no client has this token"
        with pytest.raises(errors.Forbidden), offramp.connect("orders", **secured.access(sidecar, token=token)) as it:
            it.take(WAIT_TIMEOUT)


def test_a_token_must_come_as_a_bearer(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar) as channel:
        call = channel.unary_unary("/offramp.v1.ConsumerService/Fetch")
        for value, code in (
            (f"Basic {TOKENS['app']}", grpc.StatusCode.UNAUTHENTICATED),
            (TOKENS["app"], grpc.StatusCode.UNAUTHENTICATED),
            ("Bearer ", grpc.StatusCode.UNAUTHENTICATED),
            (f"bearer {TOKENS['app']}", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                call(b"", metadata=[("authorization", value)], timeout=WAIT_TIMEOUT)
            assert raised.value.code() is code


def test_a_caller_without_tls_gets_no_word(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, grpc.insecure_channel(tcp_address(sidecar)) as channel:
        error = refused(channel)
        assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_does_not_show_its_token_to_a_stranger(tmp_path: Path) -> None:
    """The sidecar's certificate is signed by an authority that the client does not trust."""
    secured = Secured(tmp_path)
    other = Authority(tmp_path / "other")
    with secured.sidecar() as sidecar:
        with secured.channel(sidecar, "app", ca=str(other.certificate)) as channel:
            error = refused(channel)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        with secured.channel(sidecar, "app", server_name="another.name") as channel:
            assert refused(channel).code() is grpc.StatusCode.UNAVAILABLE


def test_with_certificates_of_clients_whoever_has_none_is_not_let_in(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    client, stranger = secured.authority.sign("client"), Authority(tmp_path / "other").sign("client")
    with secured.sidecar(listen=secured.listen(mutual=True), clients={}) as sidecar:
        mine = {"certificate": str(client.certificate), "key": str(client.key)}
        with secured.channel(sidecar, **mine) as channel:
            assert not fetch(channel).batches
        with secured.channel(sidecar) as channel:
            assert refused(channel).code() is grpc.StatusCode.UNAVAILABLE
        theirs = {"certificate": str(stranger.certificate), "key": str(stranger.key)}
        with secured.channel(sidecar, **theirs) as channel:
            assert refused(channel).code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("listen", "allowed"),
    [
        ({}, False),
        ({"certificate_rights": ["consume", "admin"]}, True),
        ({"certificate_rights": ["consume", "admin"], "rights": ["consume"]}, False),
    ],
)
def test_a_certificate_alone_does_not_make_an_operator(tmp_path: Path, listen: dict[str, Any], allowed: bool) -> None:
    secured = Secured(tmp_path)
    client = secured.authority.sign("client")
    mine = {"certificate": str(client.certificate), "key": str(client.key)}
    with (
        secured.sidecar(listen=secured.listen(mutual=True, **listen), clients={}) as sidecar,
        secured.channel(sidecar, **mine) as channel,
    ):
        assert not fetch(channel).batches
        if allowed:
            assert status(channel).version
            return
        with pytest.raises(grpc.RpcError) as raised:
            status(channel)
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_with_certificates_and_tokens_both_are_needed(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    client = secured.authority.sign("client")
    mine = {"certificate": str(client.certificate), "key": str(client.key)}
    with secured.sidecar(listen=secured.listen(mutual=True)) as sidecar:
        with secured.channel(sidecar, "app", **mine) as channel:
            assert not fetch(channel).batches
        with secured.channel(sidecar, **mine) as channel:
            assert refused(channel).code() is grpc.StatusCode.UNAUTHENTICATED
        with secured.channel(sidecar, "app") as channel:
            assert refused(channel).code() is grpc.StatusCode.UNAVAILABLE


def test_health_is_for_everybody_and_says_nothing_else(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_TIMEOUT)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        for more in (
            lambda: next(health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_TIMEOUT)),
            lambda: status(channel),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                more()
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_reflection_is_only_for_those_with_a_token(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with secured.sidecar() as sidecar:
        with secured.channel(sidecar) as channel, pytest.raises(grpc.RpcError) as raised:
            list(
                reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(ask), timeout=WAIT_TIMEOUT)
            )
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with secured.channel(sidecar, "app") as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            (answer,) = stub.ServerReflectionInfo(iter(ask), timeout=WAIT_TIMEOUT)
        assert "offramp.v1.ConsumerService" in [one.name for one in answer.list_services_response.service]


def test_many_wrong_tokens_are_one_line_of_the_log(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar, token=TOKENS["nobody"]) as channel:
        for _ in range(50):
            assert refused(channel).code() is grpc.StatusCode.UNAUTHENTICATED
        assert sidecar.metric("offramp_refused_calls_total", listener="listen.tcp") == 50
        assert sidecar.metric("offramp_certificate_expires_timestamp_seconds") > 2_000_000_000
        turned_away = [event for event in sidecar.events() if event["message"].startswith("calls refused")]
        assert 1 <= len(turned_away) <= 3
        assert TOKENS["nobody"] not in sidecar.log


@pytest.mark.parametrize(
    ("authenticate", "socket", "tcp"), [("network", True, True), ("tcp", True, False), ("all", False, False)]
)
def test_the_socket_and_loopback_ask_for_tokens_only_if_told_to(
    tmp_path: Path, authenticate: str, socket: bool, tcp: bool
) -> None:
    secured = Secured(tmp_path)
    listen = {"tcp": "127.0.0.1:0", "authenticate": authenticate}
    sidecar = secured.sidecar(listen=listen)
    sidecar.launch()
    try:
        for address, is_open in ((sidecar.target, socket), (tcp_address(sidecar), tcp)):
            eventually(sidecar.socket.exists)
            with offramp.open_channel(address) as channel:
                if is_open:
                    assert not fetch(channel).batches
                else:
                    assert refused(channel).code() is grpc.StatusCode.UNAUTHENTICATED
            with offramp.open_channel(address, token=TOKENS["app"]) as channel:
                assert not fetch(channel).batches
    finally:
        sidecar.terminate()


def offramp_command(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sidecar", *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT,
        check=False,
    )


def test_operators_look_at_a_sidecar_over_tls(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        trust = ("--address", tcp_address(sidecar), "--tls-ca", str(secured.authority.certificate))
        named = (*trust, "--tls-server-name", "localhost")
        token = str(tmp_path / "operator.token")
        done = offramp_command("status", "--json", *named, "--token-file", token)
        assert json.loads(done.stdout)["subscriptions"][0]["name"] == "orders", done.stderr
        by_environment = offramp_command("status", "--json", *named, OFFRAMP_TOKEN_FILE=token)
        assert by_environment.returncode == 0, by_environment.stderr
        without = offramp_command("status", *named)
        assert (without.returncode, without.stderr) == (
            1,
            "offramp: a token is required: authorization: Bearer TOKEN\n",
        )
        missing = offramp_command("status", *named, "--token-file", "/nowhere")
        assert (missing.returncode, missing.stderr) == (
            1,
            "offramp: --token-file: /nowhere: No such file or directory\n",
        )


def test_a_worker_in_processes_shows_its_token_in_each(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar:
        sidecar.publish("orders", [b"1", b"2", b"3"])
        token_file = secret_file(tmp_path / "mine", TOKENS["app"] + "\n")
        access = {**secured.access(sidecar), "token": None, "token_file": str(token_file)}
        work = f"offramp.Processes('orders', print, processes=2, **{access!r}).run()"
        (tmp_path / "work.py").write_text(f"import offramp\nif __name__ == '__main__':\n    {work}\n")
        worker = subprocess.Popen([sys.executable, str(tmp_path / "work.py")], stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: sidecar.status().counters.acked == 3)
        finally:
            worker.terminate()
            worker.wait(WAIT_TIMEOUT)


def test_where_there_are_no_clients_a_token_is_neither_asked_for_nor_looked_at(tmp_path: Path) -> None:
    """An app may have a token in its environment and find a sidecar without clients."""
    with Sidecar(tmp_path) as sidecar, offramp.open_channel(sidecar.target, token=TOKENS["nobody"]) as channel:
        assert status(channel).version

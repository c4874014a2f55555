"""Over TCP beyond loopback: TLS and proof of identity, or nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import offramp
from offramp import errors
from tests.e2e import harness
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually, refused
from tests.security.authority import Authority, Pair
from tests.security.kit import TOKENS, Secured, fetch, machine, secret_file, status, tcp_address

UNAUTHENTICATED, UNAVAILABLE = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE


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


class Site(NamedTuple):
    """A sidecar that asks for TLS and a token, and whoever calls it."""

    secured: Secured
    sidecar: Sidecar

    def access(self, client: str = "", **more: Any) -> dict[str, Any]:
        return self.secured.access(self.sidecar, client, **more)

    def channel(self, client: str = "", **more: Any) -> grpc.Channel:
        return self.secured.channel(self.sidecar, client, **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One sidecar for all tests that do not need it otherwise."""
    secured = Secured(tmp_path_factory.mktemp("site"))
    with secured.sidecar() as sidecar:
        yield Site(secured, sidecar)


def test_a_client_with_a_token_consumes_and_publishes_over_tls(site: Site) -> None:
    acked = site.sidecar.status().counters.acked
    access = site.access("app")
    with offramp.Publisher(subscription="orders", **access) as publisher:
        publisher.publish("orders", b"1")
    with offramp.connect("orders", **access) as consumer:
        batch = consumer.take(WAIT_TIMEOUT)
        assert batch is not None
        assert [record.value for record in batch] == [b"1"]
        batch.ack()
        eventually(lambda: site.sidecar.status().counters.acked == acked + 1)


def test_a_caller_without_a_token_is_unauthenticated(site: Site) -> None:
    with site.channel() as channel:
        with refused(UNAUTHENTICATED, "a token is required"):
            fetch(channel)
        # Nor is anything waited for: this call never sends its request.
        silent: SimpleQueue[bytes] = SimpleQueue()
        with refused(UNAUTHENTICATED):
            next(
                channel.stream_stream("/offramp.v1.ConsumerService/Consume")(
                    iter(silent.get, b""), timeout=WAIT_TIMEOUT
                )
            )
        silent.put(b"")
    with site.channel("app") as mine:
        assert not fetch(mine).batches


@pytest.mark.parametrize("token", [TOKENS["nobody"], TOKENS["app"][:-1], TOKENS["app"] + "x", TOKENS["app"].upper()])
def test_a_caller_with_a_wrong_token_is_unauthenticated(site: Site, token: str) -> None:
    with site.channel(token=token) as channel, refused(UNAUTHENTICATED, "no client has this token"):
        fetch(channel)
    with pytest.raises(errors.Forbidden), offramp.connect("orders", **site.access(token=token)) as it:
        it.take(WAIT_TIMEOUT)


def test_a_token_must_come_as_a_bearer(site: Site) -> None:
    with site.channel() as channel:
        call = channel.unary_unary("/offramp.v1.ConsumerService/Fetch")
        for value, code in (
            (f"Basic {TOKENS['app']}", UNAUTHENTICATED),
            (TOKENS["app"], UNAUTHENTICATED),
            ("Bearer ", UNAUTHENTICATED),
            (f"bearer {TOKENS['app']}", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with refused(code):
                call(b"", metadata=[("authorization", value)], timeout=WAIT_TIMEOUT)


def test_a_caller_without_tls_gets_no_word(site: Site) -> None:
    with grpc.insecure_channel(tcp_address(site.sidecar)) as channel, refused(UNAVAILABLE):
        fetch(channel)


def test_a_client_does_not_show_its_token_to_a_stranger(site: Site, tmp_path: Path) -> None:
    """The sidecar's certificate is signed by an authority that the client does not trust, or is not for its name."""
    other = Authority(tmp_path / "other")
    for strange in ({"ca": str(other.certificate)}, {"server_name": "another.name"}):
        with site.channel("app", **strange) as channel, refused(UNAVAILABLE):
            fetch(channel)


def proof(pair: Pair) -> dict[str, str]:
    """The options of a client with a certificate."""
    return {"certificate": str(pair.certificate), "key": str(pair.key)}


def test_with_certificates_of_clients_whoever_has_none_is_not_let_in(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    client, stranger = secured.authority.sign("client"), Authority(tmp_path / "other").sign("client")
    with secured.sidecar(listen=secured.listen(mutual=True), clients={}) as sidecar:
        with secured.channel(sidecar, **proof(client)) as channel:
            assert not fetch(channel).batches
        with secured.channel(sidecar) as channel, refused(UNAVAILABLE):
            fetch(channel)
        with secured.channel(sidecar, **proof(stranger)) as channel, refused(UNAVAILABLE):
            fetch(channel)


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
    with (
        secured.sidecar(listen=secured.listen(mutual=True, **listen), clients={}) as sidecar,
        secured.channel(sidecar, **proof(client)) as channel,
    ):
        assert not fetch(channel).batches
        with nullcontext() if allowed else refused(grpc.StatusCode.PERMISSION_DENIED):
            assert status(channel).version


def test_with_certificates_and_tokens_both_are_needed(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    mine = proof(secured.authority.sign("client"))
    with secured.sidecar(listen=secured.listen(mutual=True)) as sidecar:
        with secured.channel(sidecar, "app", **mine) as channel:
            assert not fetch(channel).batches
        with secured.channel(sidecar, **mine) as channel, refused(UNAUTHENTICATED):
            fetch(channel)
        with secured.channel(sidecar, "app") as channel, refused(UNAVAILABLE):
            fetch(channel)


def test_health_is_for_everybody_and_says_nothing_else(site: Site) -> None:
    with site.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_TIMEOUT)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with refused(UNAUTHENTICATED):
            next(health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_TIMEOUT))
        with refused(UNAUTHENTICATED):
            status(channel)


def test_reflection_is_only_for_those_with_a_token(site: Site) -> None:
    def services(channel: grpc.Channel) -> list[str]:
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(asked, timeout=WAIT_TIMEOUT)
        return [one.name for one in answer.list_services_response.service]

    with site.channel() as channel, refused(UNAUTHENTICATED):
        services(channel)
    with site.channel("app") as channel:
        assert "offramp.v1.ConsumerService" in services(channel)


def test_many_wrong_tokens_are_one_line_of_the_log(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    with secured.sidecar() as sidecar, secured.channel(sidecar, token=TOKENS["nobody"]) as channel:
        for _ in range(50):
            with refused(UNAUTHENTICATED):
                fetch(channel)
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
    sidecar = secured.sidecar(listen={"tcp": "127.0.0.1:0", "authenticate": authenticate})
    sidecar.launch()
    try:
        for address, is_open in ((sidecar.target, socket), (tcp_address(sidecar), tcp)):
            eventually(sidecar.socket.exists)
            with offramp.open_channel(address) as channel, nullcontext() if is_open else refused(UNAUTHENTICATED):
                assert not fetch(channel).batches
            with offramp.open_channel(address, token=TOKENS["app"]) as channel:
                assert not fetch(channel).batches
    finally:
        sidecar.terminate()


def offramp_command(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """With nothing in its environment but what is given."""
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environment}
    return harness.offramp(*arguments, env=env)


def test_operators_look_at_a_sidecar_over_tls(site: Site) -> None:
    trust = ("--address", tcp_address(site.sidecar), "--tls-ca", str(site.secured.authority.certificate))
    named = (*trust, "--tls-server-name", "localhost")
    token = str(site.secured.folder / "operator.token")
    done = offramp_command("status", "--json", *named, "--token-file", token)
    assert json.loads(done.stdout)["subscriptions"][0]["name"] == "orders", done.stderr
    by_environment = offramp_command("status", "--json", *named, OFFRAMP_TOKEN_FILE=token)
    assert by_environment.returncode == 0, by_environment.stderr
    for arguments, said in (
        ((), "a token is required: authorization: Bearer TOKEN"),
        (("--token-file", "/nowhere"), "--token-file: /nowhere: No such file or directory"),
    ):
        done = offramp_command("status", *named, *arguments)
        assert (done.returncode, done.stderr) == (1, f"offramp: {said}\n")


def test_a_worker_in_processes_shows_its_token_in_each(site: Site, tmp_path: Path) -> None:
    acked = site.sidecar.status().counters.acked
    site.sidecar.publish("orders", [b"1", b"2", b"3"])
    token_file = secret_file(tmp_path / "mine", TOKENS["app"] + "\n")
    access = {**site.access(), "token": None, "token_file": str(token_file)}
    work = f"offramp.Processes('orders', print, processes=2, **{access!r}).run()"
    (tmp_path / "work.py").write_text(f"import offramp\nif __name__ == '__main__':\n    {work}\n")
    worker = subprocess.Popen([sys.executable, str(tmp_path / "work.py")], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: site.sidecar.status().counters.acked == acked + 3)
    finally:
        worker.terminate()
        worker.wait(WAIT_TIMEOUT)


def test_where_there_are_no_clients_a_token_is_neither_asked_for_nor_looked_at(tmp_path: Path) -> None:
    """An app may have a token in its environment and find a sidecar without clients."""
    with Sidecar(tmp_path) as sidecar, offramp.open_channel(sidecar.target, token=TOKENS["nobody"]) as channel:
        assert status(channel).version

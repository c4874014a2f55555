"""Marked secrets and payloads pass failures of all kinds at debug level; no output of the sidecar may contain them."""

import base64
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import offramp
from offramp.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    publish_pb2,
    publish_pb2_grpc,
    record_pb2,
)
from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, Worker, eventually
from tests.security.kit import Secured, secret_file, status, tcp_address
from tests.security.test_network import offramp_command

#: what must never be seen again, and what it is
SECRETS = {
    "value-marked-7f3a": "the value of a record",
    "key-marked-81bc": "the key of a record",
    "header-name-marked-40de": "the name of a header",
    "header-value-marked-c2aa": "the value of a header",
    "token-marked-0123456789abcdef": "a token",
    "old-token-marked-0123456789abcdef": "a token that was rotated away",
    "wrong-token-marked-0123456789abcdef": "a token that somebody tried",
    "kafka-password-marked-55": "the password of a broker",
    "pulsar-token-marked-66": "the token of a broker",
    "login-marked-67": "the whole login of a broker, given as one of its library's properties",
    "body-marked-77": "a request that is no message",
}
VALUE, KEY, HEADER, HEADER_VALUE, TOKEN, OLD_TOKEN, WRONG_TOKEN, PASSWORD, PULSAR_TOKEN, LOGIN, BODY = SECRETS


def forms(secret: str) -> Iterator[str]:
    """The forms in which careless code may print it."""
    raw = secret.encode()
    yield secret
    yield raw.hex()
    yield from (base64.b64encode(bytes(pad) + raw).decode().strip("=")[4:-4] for pad in range(3))
    yield urllib.parse.quote(secret)


def marked_record() -> publish_pb2.Message:
    header = record_pb2.Header(name=HEADER, value=HEADER_VALUE.encode())
    return publish_pb2.Message(key=KEY.encode(), value=VALUE.encode(), headers=[header])


def publish(channel: grpc.Channel, count: int = 1) -> None:
    request = publish_pb2.PublishRequest(broker="local", topic="orders", messages=[marked_record()] * count)
    publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)


def settle(channel: grpc.Channel, outcome: Any, **more: Any) -> None:
    """Take a batch of one record and settle it."""
    stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
    request = consumer_pb2.FetchRequest(subscription="orders", wait_ms=10_000)
    (batch,) = stub.Fetch(request, timeout=WAIT_TIMEOUT).batches
    assert batch.records[0].value == VALUE.encode(), "the secret does go through here"
    settlement = record_pb2.Settlement(lease=batch.lease, outcome=outcome, **more)
    stub.Settle(consumer_pb2.SettleRequest(settlements=[settlement]), timeout=WAIT_TIMEOUT)


def fail_in_every_way(sidecar: Sidecar, secured: Secured, channel: grpc.Channel) -> None:
    stub = consumer_pb2_grpc.ConsumerServiceStub(channel)
    publish(channel, 8)
    settle(channel, record_pb2.OUTCOME_ACK)
    settle(channel, record_pb2.OUTCOME_NACK, reason="no")
    settle(channel, record_pb2.OUTCOME_RELEASE)
    settle(channel, record_pb2.OUTCOME_OVERLOADED)
    settle(channel, record_pb2.OUTCOME_REJECT, reason="never")
    # A lease that expires, a worker that is killed, and one that vanishes in the middle of a stream.
    stub.Fetch(consumer_pb2.FetchRequest(subscription="orders", lease_ms=100), timeout=WAIT_TIMEOUT)
    with Worker(sidecar, "consume") as worker:
        worker.batch()
    # Requests that make no sense, which hold a secret all the same.
    for method in ("Fetch", "Settle", "ExtendLease"):
        call = channel.unary_unary(f"/offramp.v1.ConsumerService/{method}")
        with pytest.raises(grpc.RpcError):
            call(b"\xff" + BODY.encode(), timeout=WAIT_TIMEOUT)
    nonsense = consumer_pb2.SettleRequest(settlements=[record_pb2.Settlement(lease=BODY.encode())])
    (result,) = stub.Settle(nonsense, timeout=WAIT_TIMEOUT).results
    assert result.status == record_pb2.SETTLE_STATUS_REFUSED
    for bad in (
        publish_pb2.PublishRequest(broker="nowhere", topic="orders", messages=[marked_record()]),
        publish_pb2.PublishRequest(broker="kafka", topic="orders", messages=[marked_record()]),
        publish_pb2.PublishRequest(broker="local", topic="", messages=[marked_record()]),
        # Over the limit of a request.
        publish_pb2.PublishRequest(
            broker="local", topic="orders", messages=[publish_pb2.Message(value=VALUE.encode() * 70_000)]
        ),
    ):
        with pytest.raises(grpc.RpcError):
            publish_pb2_grpc.PublishServiceStub(channel).Publish(bad, timeout=WAIT_TIMEOUT)
    # Tokens: none, a wrong one, one that is rotated away, and files that are not good.
    for token in (None, WRONG_TOKEN):
        with secured.channel(sidecar, token=token) as stranger, pytest.raises(grpc.RpcError):
            status(stranger)
    secured.token_file("app", TOKEN)
    sidecar.event("reloaded tokens")
    secret_file(secured.folder / "app.token", TOKEN + " " + OLD_TOKEN)
    sidecar.event("cannot use a changed file; the previous content stays in use")
    with secured.channel(sidecar, token=OLD_TOKEN) as old, pytest.raises(grpc.RpcError):
        status(old)
    # Operators.
    admin = admin_pb2_grpc.AdminServiceStub(channel)
    eventually(lambda: sidecar.status().counters.dead_lettered)
    admin.Pause(admin_pb2.PauseRequest(subscription="orders"), timeout=WAIT_TIMEOUT)
    admin.Resume(admin_pb2.ResumeRequest(subscription="orders"), timeout=WAIT_TIMEOUT)
    list(admin.Redrive(admin_pb2.RedriveRequest(subscription="orders", all=True), timeout=WAIT_TIMEOUT))


def everything_said(sidecar: Sidecar, channel: grpc.Channel, config: Path) -> Iterator[tuple[str, str]]:
    yield "the status", str(status(channel))
    for page in ("/", "/healthz", "/startupz", "/readyz", "/metrics", "/version", "/status", "/api/status"):
        yield page, sidecar.get(page)[1]
    for command in (("status",), ("status", "--json"), ("lint",), ("lint", "--show")):
        where = ("--address", sidecar.target) if command[0] == "status" else ("-c", str(config))
        done = offramp_command(*command, *where)
        yield f"offramp {' '.join(command)}", done.stdout + done.stderr
    wrong = config.with_name("wrong.yaml")
    wrong.write_text(config.read_text().replace('"username"', '"usrname"'))
    done = offramp_command("lint", "-c", str(wrong))
    assert done.returncode == 1
    yield "offramp lint of a mistake", done.stdout + done.stderr
    assert sidecar.terminate() == 0
    yield "the log", sidecar.log


def test_nothing_that_is_said_has_a_secret_in_it(tmp_path: Path) -> None:
    secured = Secured(tmp_path, app={"consume": "*", "publish": "*", "admin": "*"})
    secured.token_file("app", OLD_TOKEN, TOKEN)
    brokers = {
        "local": {"type": "local", "directory": str(tmp_path / "data"), "lanes": 1},
        # Nobody listens there, so that both fail to connect for as long as the sidecar runs.
        "kafka": {
            "type": "kafka",
            "servers": ["127.0.0.1:1"],
            "sasl": "plain",
            "username": "somebody",
            "password": PASSWORD,
            "properties": {"sasl.oauthbearer.config": f"principal={LOGIN}"},
        },
        "pulsar": {"type": "pulsar", "url": "pulsar://127.0.0.1:1", "token": PULSAR_TOKEN},
    }
    subscriptions = {
        "orders": {"topics": ["orders"], "batch": {"records": 1}, "retry": {"first": "10ms", "attempts": 2}},
        "far": {"broker": "kafka", "topics": ["far"]},
        "away": {"broker": "pulsar", "topics": ["away"]},
    }
    listen = secured.listen(max_request_bytes="1MiB")
    sidecar = secured.sidecar(listen=listen, brokers=brokers, subscriptions=subscriptions)
    with sidecar:
        config = tmp_path / "offramp.yaml"
        assert json.loads(config.read_text())["log"]["level"] == "debug"
        assert PASSWORD in config.read_text(), "it is there to be told"
        with offramp.open_channel(sidecar.target) as channel:
            fail_in_every_way(sidecar, secured, channel)
            said = dict(everything_said(sidecar, channel, config))
    key = secured.server.key.read_text().split("\n")[1]
    for where, text in said.items():
        assert text.strip(), f"{where} says something"
        for secret, what in SECRETS.items():
            for form in forms(secret):
                assert form not in text, f"{where} shows {what}"
        assert key not in text, f"{where} shows the private key"
    assert tcp_address(sidecar) in said["the log"], "this is the log"

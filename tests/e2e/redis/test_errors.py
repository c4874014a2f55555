"""What can be wrong with a Redis: each trouble has its own line, in the status and in the log."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.brokers.harness import name
from tests.e2e.broker_case import BrokerCase
from tests.e2e.harness import eventually, offramp
from tests.servers import certificates
from tests.servers.fixtures import NewRedis
from tests.servers.process import free_ports
from tests.servers.redis import RedisServer

#: what docs/brokers/redis.md says that the account needs
RIGHTS = (
    *("~*", "-@all", "+ping", "+info", "+config|get", "+exists", "+ttl", "+client|setname"),
    *("+xadd", "+xack", "+xreadgroup", "+xpending", "+xclaim", "+xrange", "+xrevrange", "+xlen", "+xtrim"),
    *("+xgroup", "+xinfo", "+eval", "+evalsha", "+time"),
)


class Case(BrokerCase):
    def __init__(self, folder: Path, server: RedisServer, topic: str = "", **broker: Any) -> None:
        super().__init__(
            folder, topic or name("topic"), {"type": "redis", "url": server.url, "timeout": "2s", **broker}
        )
        self.server = server

    def works(self) -> None:
        """It gets what is published now."""
        eventually(lambda: not self.sidecar.status().trouble, "the trouble is over", 120.0)
        with self.server.client() as client:
            client.xadd(self.topic, {"value": b"value"})
        eventually(lambda: self.sidecar.status().counters.fetched, "a record comes")


@pytest.fixture
def case(tmp_path: Path, redis: RedisServer) -> Iterator[Any]:
    with contextlib.ExitStack() as cases:

        def make(server: RedisServer = redis, **broker: Any) -> Case:
            made = Case(tmp_path, server, **broker)
            cases.push(made.sidecar.__exit__)
            return made

        yield make


def test_a_server_that_is_not_there(case: Any) -> None:
    (port,) = free_ports(1)
    case(url=f"redis://127.0.0.1:{port}").start().trouble(f"nobody listens at 127.0.0.1:{port}")


def test_a_host_that_is_not_known(case: Any) -> None:
    case(url="redis://no-such-host.invalid:6379").start().trouble("the host of no-such-host.invalid:6379 is not known")


def test_a_password_that_is_wrong_and_then_replaced(case: Any, redis: RedisServer, tmp_path: Path) -> None:
    user, file = name("user"), tmp_path / "password"
    redis.make_user(user, "right", *RIGHTS)
    file.write_text("wrong\n")
    one = case(username=user, password_file=str(file)).start()
    one.trouble("does not take this user and password")
    file.write_text("right\n")
    one.works()


def test_the_rights_that_the_page_names_are_enough_with_tls(case: Any, redis: RedisServer) -> None:
    user = name("user")
    redis.make_user(user, "secret", *RIGHTS)
    one = case(url=redis.url_tls, tls_ca=str(redis.ca), username=user, password="secret").start()
    one.works()
    one.sidecar.publish(one.topic, [b"published"], broker="it")
    assert one.sidecar.terminate() == 0
    assert "secret" not in one.sidecar.log


def test_a_right_that_is_missing_and_then_given(case: Any, redis: RedisServer) -> None:
    user = name("user")
    redis.make_user(user, "secret", *RIGHTS, "-xgroup")
    one = case(username=user, password="secret").start()
    one.trouble("the user has no right to", "xgroup")
    redis.make_user(user, "secret", "+xgroup")
    one.works()


def test_a_user_who_may_not_ask_about_the_server_consumes_all_the_same(case: Any, redis: RedisServer) -> None:
    user = name("user")
    redis.make_user(user, "secret", *RIGHTS, "-info", "-config|get")
    case(username=user, password="secret").start().works()


def test_a_certificate_that_is_not_trusted(case: Any, redis: RedisServer, tmp_path: Path) -> None:
    other = certificates.make(tmp_path / "other")
    one = case(url=redis.url_tls, tls_ca=str(other.ca)).start()
    one.trouble("the certificate of 127.0.0.1", "is not trusted")


def test_a_port_without_tls(case: Any, redis: RedisServer) -> None:
    case(url=redis.url.replace("redis:", "rediss:"), tls_ca=str(redis.ca)).start().trouble("Is it the port for TLS?")


def test_a_port_with_tls_that_is_spoken_to_without(case: Any, redis: RedisServer) -> None:
    case(url=redis.url_tls.replace("rediss:", "redis:")).start().trouble("Does it want TLS")


def test_a_stream_that_is_missing_where_none_is_made(case: Any, redis: RedisServer) -> None:
    one = case(create_streams=False).start()
    one.trouble(f"There is no stream '{one.group}.offramp.retry'", "XGROUP CREATE", "MKSTREAM")
    redis.make_topic(f"{one.group}.offramp.retry")
    one.trouble(f"There is no queue '{one.topic}'")
    redis.make_topic(one.topic)
    one.works()


def test_a_key_that_is_no_stream(case: Any, redis: RedisServer) -> None:
    one = case()
    with redis.client() as client:
        client.set(one.topic, "text")
    one.start().trouble("this key is not a stream")


def test_a_server_whose_memory_is_full_is_drained(case: Any, new_redis: NewRedis) -> None:
    server = new_redis()
    one = case(server).start()
    one.works()
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
    with pytest.raises(grpc.RpcError) as refused:
        one.sidecar.publish(one.topic, [b"more"], broker="it")
    assert "memory is full (maxmemory)" in str(refused.value)
    with server.client() as client:
        # What was there before is consumed.
        assert client.xinfo_groups(one.topic)[0]["lag"] == 0


def test_a_message_that_is_too_large(case: Any) -> None:
    one = case(max_message="2KiB").start()
    one.works()
    with pytest.raises(grpc.RpcError) as refused:
        one.sidecar.publish(one.topic, [bytes(3000)], broker="it")
    assert "has 3000 bytes; max_message is 2048" in str(refused.value)


def test_an_address_of_a_cluster(case: Any, new_redis: NewRedis) -> None:
    server = new_redis(settings={"cluster-enabled": "yes"})
    case(server).start().trouble("node of a cluster")


def test_the_command_refuses_what_cannot_be_promised(tmp_path: Path) -> None:
    config = tmp_path / "offramp.yaml"
    config.write_text(
        "brokers: {redis: {url: 'redis://redis:6379'}}\n"
        "subscriptions: {orders: {broker: redis, topics: [orders], order: key}}\n"
    )
    done = offramp("lint", "--config", str(config))
    assert done.returncode != 0
    assert 'subscriptions.orders.order: "key" cannot be kept: ' in done.stderr


def test_without_the_library_lint_works_and_the_sidecar_says_how_to_get_it(tmp_path: Path) -> None:
    config = tmp_path / "offramp.yaml"
    config.write_text(
        "brokers: {redis: {url: 'redis://redis:6379'}}\nsubscriptions: {orders: {broker: redis, topics: [orders]}}\n"
    )
    # As if it were not installed.
    (tmp_path / "redis.py").write_text("raise ModuleNotFoundError(\"No module named 'redis'\")\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"}
    assert offramp("lint", "--config", str(config), env=environ).returncode == 0
    run = [sys.executable, "-m", "sidecar", "run", "--config", str(config)]
    done = subprocess.run(run, env=environ, capture_output=True, encoding="utf-8", timeout=60.0, check=False)
    assert done.returncode != 0
    assert "type redis needs a library that is not installed: pip install" in done.stderr
    assert "offramp-sidecar[redis]" in done.stderr
    assert "Traceback" not in done.stderr

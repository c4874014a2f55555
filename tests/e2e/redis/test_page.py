"""What docs/brokers/redis.md shows works: its example, and the commands on a Redis."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp.v1 import consumer_pb2, record_pb2
from tests.brokers.harness import name
from tests.e2e.harness import Sidecar, eventually, offramp
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "brokers" / "redis.yaml"


def test_the_page_shows_the_example(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "brokers" / "redis.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    assert EXAMPLE.read_text().partition("\n")[2] == shown
    assert offramp("lint", "--config", str(EXAMPLE)).returncode == 0


@pytest.fixture
def sidecar(tmp_path: Path, redis: RedisServer) -> Iterator[Sidecar]:
    topic = name("orders")
    subscription = {"broker": "redis", "topics": [topic], "group": f"{topic}-billing"}
    with Sidecar(
        tmp_path, subscriptions={"orders": subscription}, brokers={"redis": {"type": "redis", "url": redis.url}}
    ) as started:
        yield started


def command(sidecar: Sidecar, *arguments: str, stdin: str = "") -> str:
    done = offramp(*arguments, "--address", f"unix:{sidecar.socket}", input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_entry_of_any_producer_is_consumed(sidecar: Sidecar, redis: RedisServer) -> None:
    subscription = sidecar.settings["subscriptions"]["orders"]
    with redis.client() as client:
        topic, group = subscription["topics"][0], subscription["group"]
        id_ = client.xadd(topic, {"key": "customer-7", "value": '{"order": 1}', "source": "shop"})
        (line,) = command(sidecar, "consume", "orders", "--count", "1").splitlines()
        told = json.loads(line)
        assert (told["key"], told["value"]) == ("customer-7", '{"order": 1}')
        assert "source" in json.dumps(told["headers"])
        assert told["timestamp_ms"] == int(id_.decode().partition("-")[0])
        eventually(lambda: client.xpending(topic, group)["pending"] == 0, "it is acked")


def test_the_commands_publish_list_dead_letters_and_send_them_back(sidecar: Sidecar, redis: RedisServer) -> None:
    topic = sidecar.settings["subscriptions"]["orders"]["topics"][0]
    command(sidecar, "publish", "--broker", "redis", "--topic", topic, "--key", "k", stdin="bad\n")
    with sidecar.consumer() as stub:
        (batch,) = stub.Fetch(consumer_pb2.FetchRequest(subscription="orders", wait_ms=10_000)).batches
        reject = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_REJECT, reason="not an order")
        stub.Settle(consumer_pb2.SettleRequest(settlements=[reject]))
    eventually(lambda: "not an order" in command(sidecar, "dead-letters", "orders"), "it is in the dead-letter topic")
    (letter,) = map(json.loads, command(sidecar, "dead-letters", "orders", "--json").splitlines())
    assert (letter["key"], letter["value"]) == ("k", "bad")
    assert command(sidecar, "redrive", "orders", "--id", letter["id"]) == "1 dead letter of orders sent back\n"
    (line,) = command(sidecar, "consume", "orders", "--count", "1").splitlines()
    assert (json.loads(line)["topic"], json.loads(line)["value"]) == (topic, "bad")


def test_the_status_tells_the_backlog_and_where_the_server_is(sidecar: Sidecar, redis: RedisServer) -> None:
    topic = sidecar.settings["subscriptions"]["orders"]["topics"][0]
    with redis.client() as client:
        for number in range(30):
            client.xadd(topic, {"value": str(number)})
    status = json.loads(command(sidecar, "status", "--json"))
    facts = status["brokers"][0]["facts"]
    assert facts["durability"] == "append-only file"
    assert facts["server"].startswith("Redis ")
    eventually(lambda: sum(lane.lag for lane in sidecar.status().lanes) == 30, "the lag is known")

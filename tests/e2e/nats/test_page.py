"""What docs/brokers/nats.md shows works: its example, its rights, and the commands on a NATS."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp.v1 import consumer_pb2, record_pb2
from tests.brokers.harness import name
from tests.brokers.nats.test_security import RIGHTS
from tests.e2e.harness import Sidecar, eventually, offramp
from tests.servers.nats import NatsServer

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "brokers" / "nats.yaml"
PAGE = (ROOT / "docs" / "brokers" / "nats.md").read_text()


def test_the_page_shows_the_example_and_the_rights_that_are_tested() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert EXAMPLE.read_text().partition("\n")[2] == shown
    assert RIGHTS in PAGE
    assert offramp("lint", "--config", str(EXAMPLE)).returncode == 0


@pytest.fixture
def sidecar(tmp_path: Path, nats: NatsServer) -> Iterator[Sidecar]:
    topic = name("ORDERS")
    nats.make_stream(topic, [f"{topic}.>"])
    subscription = {"broker": "nats", "topics": [topic], "group": f"{topic}-billing"}
    broker = {"type": "nats", "url": nats.url, "create_streams": True}
    with Sidecar(tmp_path, subscriptions={"orders": subscription}, brokers={"nats": broker}) as started:
        yield started


def topic_of(sidecar: Sidecar) -> str:
    topic: str = sidecar.settings["subscriptions"]["orders"]["topics"][0]
    return topic


def command(sidecar: Sidecar, *arguments: str, stdin: str = "") -> str:
    done = offramp(*arguments, "--address", f"unix:{sidecar.socket}", input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_message_of_any_publisher_is_consumed(sidecar: Sidecar, nats: NatsServer) -> None:
    topic = topic_of(sidecar)
    nats.ask(lambda stream: stream.publish(f"{topic}.eu.7", b'{"order": 1}', headers={"source": "shop"}))
    (line,) = command(sidecar, "consume", "orders", "--count", "1").splitlines()
    told = json.loads(line)
    assert told["value"] == '{"order": 1}'
    assert "source" in json.dumps(told["headers"])
    assert f"{topic}.eu.7" in json.dumps(told["headers"])

    def outstanding() -> int:
        return nats.ask(lambda stream: stream.consumer_info(topic, f"{topic}-billing")).num_ack_pending or 0

    eventually(lambda: outstanding() == 0, "it is acked")


def test_the_commands_publish_list_dead_letters_and_send_them_back(sidecar: Sidecar) -> None:
    topic = topic_of(sidecar)
    subject = f"{topic}.eu.7"
    publish = ("publish", "--broker", "nats", "--topic", topic, "--key", "k", "--header", f"Nats-Subject={subject}")
    command(sidecar, *publish, stdin="bad\n")
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
    assert subject in line


def test_the_status_tells_the_backlog_and_where_the_server_is(sidecar: Sidecar, nats: NatsServer) -> None:
    topic = topic_of(sidecar)
    for number in range(5):
        nats.ask(lambda stream: stream.publish(f"{topic}.eu", str(number).encode()))  # noqa: B023
    status = json.loads(command(sidecar, "status", "--json"))
    assert status["brokers"][0]["facts"]["server"].startswith("NATS 2.")
    eventually(lambda: sum(lane.lag for lane in sidecar.status().lanes) == 5, "the lag is known")


def test_without_the_library_lint_works_and_the_sidecar_says_how_to_get_it(tmp_path: Path) -> None:
    config = tmp_path / "offramp.yaml"
    config.write_text(
        "brokers: {nats: {url: 'nats://nats:4222'}}\nsubscriptions: {orders: {broker: nats, topics: [orders]}}\n"
    )
    # As if it were not installed.
    (tmp_path / "nats.py").write_text("raise ModuleNotFoundError(\"No module named 'nats'\")\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    assert offramp("lint", "--config", str(config), env=environ).returncode == 0
    run = [sys.executable, "-m", "sidecar", "run", "--config", str(config)]
    done = subprocess.run(run, env=environ, capture_output=True, encoding="utf-8", timeout=60.0, check=False)
    assert done.returncode != 0
    assert "type nats needs a library that is not installed: pip install" in done.stderr
    assert "offramp-sidecar[nats]" in done.stderr
    assert "Traceback" not in done.stderr

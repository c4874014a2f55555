"""The commands of an operator, against a real sidecar."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from offramp.v1 import consumer_pb2, record_pb2
from tests.e2e import harness
from tests.e2e.harness import Sidecar, eventually


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    names = ("piped", "binary", "failing", "moved")
    subscriptions = {name: {"topics": [name]} for name in names}
    with Sidecar(tmp_path_factory.mktemp("s"), subscriptions=subscriptions) as running:
        yield running


def offramp(sidecar: Sidecar, *arguments: str, stdin: str = "") -> str:
    """What a command prints; it must succeed, and say nothing on stderr."""
    done = harness.offramp(*arguments, "--address", sidecar.target, input=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def status(sidecar: Sidecar, name: str) -> dict[str, object]:
    (subscription,) = json.loads(offramp(sidecar, "status", name, "--json"))["subscriptions"]
    assert isinstance(subscription, dict)
    return subscription


def test_what_is_published_is_consumed_once_and_committed(sidecar: Sidecar) -> None:
    lines = "".join(f"{number}\n" for number in range(2500))
    out = offramp(sidecar, "publish", "--topic", "piped", stdin=lines)
    assert out.startswith("published 2,500 messages to piped\n")
    few = offramp(sidecar, "consume", "piped", "--count", "7").splitlines()
    rest = offramp(sidecar, "consume", "piped", "--idle", "1s").splitlines()
    values = [int(json.loads(line)["value"]) for line in [*few, *rest]]
    assert len(few) == 7
    assert sorted(values) == list(range(2500))
    eventually(lambda: status(sidecar, "piped")["would_be_replayed"] == 0, "all is committed")
    counters = status(sidecar, "piped")["counters"]
    assert isinstance(counters, dict)
    assert (counters["acked"], counters["nacked"], counters["abandoned"]) == (2500, 0, 0)


def test_bytes_nulls_and_headers_survive_the_way_through_the_pipes(sidecar: Sidecar) -> None:
    messages = [
        {"key": "k", "value": None, "headers": [{"name": "h", "value": "1"}, {"name": "h", "value_base64": "/w=="}]},
        {"key": None, "value_base64": "AP8="},
        {"key": "", "value": ""},
        {"key": "ä", "value": "line\nbreak"},
    ]
    lines = "".join(json.dumps({**message, "lane": 0}) + "\n" for message in messages)
    offramp(sidecar, "publish", "--subscription", "binary", "--topic", "binary", "--json", stdin=lines)
    out = offramp(sidecar, "consume", "binary", "--count", "4").splitlines()
    kept = ("key", "key_base64", "value", "value_base64")
    assert [{name: line[name] for name in kept if name in line} for line in map(json.loads, out)] == [
        {name: message[name] for name in kept if name in message} for message in messages
    ]
    assert json.loads(out[0])["headers"] == messages[0]["headers"]


def test_a_peek_takes_nothing_away(sidecar: Sidecar) -> None:
    offramp(sidecar, "publish", "--topic", "moved", stdin="a\nb\n")
    seen = offramp(sidecar, "consume", "moved", "--count", "2", "--peek")
    again = offramp(sidecar, "consume", "moved", "--count", "2")
    assert [json.loads(line)["value"] for line in seen.splitlines()] == [
        json.loads(line)["value"] for line in again.splitlines()
    ]
    sought = offramp(sidecar, "seek", "moved", "--start")
    assert sought.splitlines()[1].split() == ["moved/0", "0"]
    assert len(offramp(sidecar, "consume", "moved", "--count", "2").splitlines()) == 2


def test_a_dead_letter_is_listed_shown_and_sent_back(sidecar: Sidecar) -> None:
    offramp(sidecar, "publish", "--topic", "failing", "--key", "k", stdin="bad\n")
    with sidecar.consumer() as stub:
        (batch,) = stub.Fetch(consumer_pb2.FetchRequest(subscription="failing", wait_ms=10_000)).batches
        reject = record_pb2.Settlement(lease=batch.lease, outcome=record_pb2.OUTCOME_REJECT, reason="not an order")
        stub.Settle(consumer_pb2.SettleRequest(settlements=[reject]))
    eventually(lambda: "not an order" in offramp(sidecar, "dead-letters", "failing"), "it is in the dead-letter topic")
    (letter,) = map(json.loads, offramp(sidecar, "dead-letters", "failing", "--json").splitlines())
    assert (letter["key"], letter["value"]) == ("k", "bad")
    assert 'value     "bad"' in offramp(sidecar, "dead-letters", "failing", "--id", letter["id"])
    assert offramp(sidecar, "redrive", "failing", "--id", letter["id"]) == "1 dead letter of failing sent back\n"
    offramp(sidecar, "resume", "failing")
    (line,) = offramp(sidecar, "consume", "failing", "--count", "1").splitlines()
    assert (json.loads(line)["topic"], json.loads(line)["value"]) == ("failing", "bad")
    assert "(redriven)" in offramp(sidecar, "dead-letters", "failing")
    assert offramp(sidecar, "redrive", "failing", "--all").startswith("0 dead letters of failing sent back (1 left out")
    assert offramp(sidecar, "delete-dead-letters", "failing", "--all") == "1 dead letter of failing deleted\n"
    assert offramp(sidecar, "dead-letters", "failing") == "failing has no dead letters\n"


def test_a_pause_is_seen_with_its_reason_and_ends(sidecar: Sidecar) -> None:
    offramp(sidecar, "pause", "moved", "--reason", "the warehouse is closed")
    assert "the warehouse is closed" in offramp(sidecar, "status", "moved")
    assert status(sidecar, "moved")["state"] == "paused"
    offramp(sidecar, "resume", "moved")
    eventually(lambda: status(sidecar, "moved")["state"] == "running", "it goes on")


def test_the_first_line_of_top_comes_at_once_without_a_terminal(sidecar: Sidecar) -> None:
    with subprocess.Popen(
        [*harness.OFFRAMP, "top", "piped", "--address", sidecar.target], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert b"piped running delivered=0/s" in process.stdout.readline()
        process.terminate()
        process.wait(30)

"""`offramp publish`: lines and JSON to messages, in batches."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.v1 import publish_pb2 as publish
from offramp.v1 import record_pb2 as record
from sidecar import cli
from sidecar.cli.commands.publish import read_batches
from sidecar.cli.json_lines import parse_message, record_line
from sidecar.model.errors import OfframpError
from tests.unit.cli.fake_sidecar import FakeSidecar


def publish_file(content: bytes, *arguments: str) -> int:
    Path("input").write_bytes(content)
    return cli.main(["publish", "--topic", "t", "--file", "input", *arguments])


def test_every_line_is_a_message(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish_file(b"one\n\n\xff two\r\nlast") == 0
    assert [message.value for message in sidecar.publish.messages] == [b"one", b"", b"\xff two\r", b"last"]
    assert not any(message.HasField("key") for message in sidecar.publish.messages)
    assert (sidecar.publish.requests[0].broker, sidecar.publish.requests[0].topic) == ("local", "t")
    assert capsys.readouterr().out.splitlines() == [
        "published 4 messages to t",
        "  lane  messages  positions",
        "     0         2  0 to 2",
        "     1         2  1 to 3",
    ]


def test_key_and_headers_go_on_every_message_to_the_broker_of_a_subscription(sidecar: FakeSidecar) -> None:
    assert publish_file(b"a\nb\n", "--subscription", "orders", "--key", "k", "--header", "n=v=w", "--header", "e=") == 0
    assert sidecar.publish.requests[0].subscription == "orders"
    for message in sidecar.publish.messages:
        assert message.key == b"k"
        assert [(header.name, header.value) for header in message.headers] == [("n", b"v=w"), ("e", b"")]


def test_json_lines_say_all_of_a_message(sidecar: FakeSidecar) -> None:
    lines = [
        {"key": "k", "value": "v", "headers": {"h": "x", "n": None}, "lane": 3, "timestamp_ms": 9},
        {"value": None},
        {
            "key_base64": "/w==",
            "value_base64": "AAE=",
            "headers": [{"name": "a", "value_base64": "/w=="}, {"name": "a"}],
        },
        {"value": {"a": [1, "ä"]}, "key": 5},
        {},
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    assert publish_file(content.encode(), "--json", "--key", "default") == 0
    one, null, raw, nested, nothing = sidecar.publish.messages
    assert (one.key, one.value, one.lane, one.timestamp_ms) == (b"k", b"v", 3, 9)
    assert [(h.name, h.HasField("value"), h.value) for h in one.headers] == [("h", True, b"x"), ("n", False, b"")]
    assert (null.HasField("value"), null.key, null.HasField("lane")) == (False, b"default", False)
    assert (raw.key, raw.value, raw.headers[0].value, raw.headers[1].HasField("value")) == (
        b"\xff",
        b"\0\1",
        b"\xff",
        False,
    )
    assert (nested.value, nested.key) == ('{"a":[1,"ä"]}'.encode(), b"5")
    assert not nothing.HasField("value")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nope", "line 2 is not JSON: Expecting value"),
        ("[1]", "line 2 is not a JSON object such as"),
        ('{"vlaue": 1}', 'line 2: "vlaue" is not one of key, value, headers, lane, timestamp_ms, key_base64'),
        ('{"value": "a", "value_base64": "YQ=="}', "line 2: has both value and value_base64"),
        ('{"value_base64": "%%%"}', "line 2: value_base64 is not base64"),
        ('{"value_base64": 5}', "line 2: value_base64 is not base64"),
        ('{"lane": -1}', "line 2: lane is not a whole number"),
        ('{"lane": true}', "line 2: lane is not a whole number"),
        ('{"timestamp_ms": 1e99}', "line 2: timestamp_ms is not a whole number"),
        ('{"headers": "x"}', "line 2: headers is neither an object nor a list of objects"),
        ('{"headers": [{}]}', "line 2: a header has no name"),
        ('{"value": "\\ud800"}', "line 2: 'utf-8' codec can't encode"),
        ("[" * 100_000, "line 2 is nested too deeply"),
    ],
)
def test_a_wrong_line_is_named_and_stops_before_it(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert publish_file(f"{{}}\n{line}\n".encode(), "--json") == 1
    err = capsys.readouterr().err
    assert err.startswith(f"offramp: {said}")
    assert err.endswith("; 0 messages before were published\n")
    assert err.count("\n") == 1


def test_a_large_input_goes_in_batches_and_in_order(sidecar: FakeSidecar) -> None:
    content = b"".join(b"%d\n" % n for n in range(2500))
    assert publish_file(content) == 0
    assert [len(request.messages) for request in sidecar.publish.requests] == [1000, 1000, 500]
    assert [int(message.value) for message in sidecar.publish.messages] == list(range(2500))


def test_an_error_says_which_lines_are_in_doubt(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    sidecar.publish.error_at = 1
    assert publish_file(b"x\n" * 1500) == 1
    assert capsys.readouterr().err == (
        "offramp: the disk is full (lines 1001 to 1500 may not be published; all before are)\n"
    )


def test_an_error_names_the_lines_that_the_broker_did_not_take(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    large = publish.Published(status=publish.PUBLISH_STATUS_REFUSED, detail="too large")
    sidecar.publish.not_published = {1: large, 2: publish.Published()}
    assert publish_file(b"x\n" * 5) == 1
    assert capsys.readouterr().err == (
        "offramp: 2 lines may not be published (2, 3): too large; all others up to line 5 are, and none after it\n"
    )


def test_no_input_publishes_nothing(sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish_file(b"") == 0
    assert capsys.readouterr().out == "published 0 messages to t\n"


@pytest.mark.parametrize(("name", "said"), [("missing", "no such file or directory"), (".", "is a folder, not a file")])
def test_a_file_that_cannot_be_read_is_one_line(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert cli.main(["publish", "--topic", "t", "--file", name]) == 1
    assert capsys.readouterr().err == f"offramp: {name}: {said}\n"


def test_what_comes_by_a_pipe_is_sent_when_the_writer_pauses(sidecar: FakeSidecar) -> None:
    command = [sys.executable, "-m", "sidecar", "publish", "--topic", "t"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            while len(sidecar.publish.messages) <= number:
                assert process.poll() is None
        process.stdin.close()
        assert process.wait() == 0


@settings(max_examples=50)
@given(st.binary(max_size=300), st.integers(1, 5), st.integers(1, 20))
def test_batches_hold_all_lines_in_order_and_stay_small(content: bytes, most_lines: int, most_bytes: int) -> None:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    batches = list(read_batches(reading, most_lines, most_bytes))
    os.close(reading)
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    assert [line for batch in batches for line in batch.lines] == lines
    assert [batch.first for batch in batches] == [
        1 + sum(len(earlier.lines) for earlier in batches[:number]) for number in range(len(batches))
    ]
    assert all(0 < len(batch.lines) <= most_lines for batch in batches)
    assert all(sum(map(len, batch.lines)) <= most_bytes or len(batch.lines) == 1 for batch in batches)


payloads = st.none() | st.binary(max_size=20)


@settings(max_examples=100, deadline=None)
@given(payloads, payloads, st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3))
def test_what_consume_writes_publish_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    said = [record.Header(name=name, value=content) for name, content in headers]
    original = record.Record(key=key, value=value, headers=said, lane=2, position=5, timestamp_ms=7)
    message = parse_message(record_line("orders", original, record.Redelivery(attempt=2)), 1)
    assert message == publish.Message(key=key, value=value, headers=said, lane=2, timestamp_ms=7)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["key", "value", "headers", "lane", "timestamp_ms", "value_base64", "name"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    )
)
def test_no_json_does_more_than_fail_with_a_sentence(document: Any) -> None:
    try:
        parse_message(json.dumps(document).encode(), 3)
    except OfframpError as error:
        assert str(error).startswith("line 3")  # noqa: PT017


def test_bytes_survive_as_base64() -> None:
    line = json.loads(record_line("t", record.Record(value=b"\xff\0"), None))
    assert base64.b64decode(line["value_base64"]) == b"\xff\0"
    assert "value" not in line
    assert line["key"] is None

"""`offramp consume`: records to a pipe, and an ack for exactly what the pipe took."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from offramp.v1 import consumer_pb2 as consumer
from offramp.v1 import record_pb2 as record
from sidecar import cli
from sidecar.cli.commands.consume import LineSink
from tests.unit.cli.fake_sidecar import FakeSidecar

ACK, RELEASE = record.OUTCOME_ACK, record.OUTCOME_RELEASE


@contextmanager
def consuming(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command as a process, with pipes."""
    command = [sys.executable, "-m", "sidecar", "consume", "orders", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    code = process.wait(30)
    assert process.stderr is not None
    return code, process.stderr.read().decode()


def waiting_in(pipe: int) -> int:
    """Unread bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def lines_of(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_records_are_lines_of_json_and_acked(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    sidecar.consumer.add(b"one", b"\xff")
    sidecar.consumer.add(None)
    assert cli.main(["consume", "orders", "--count", "3"]) == 0
    first, second, third = lines_of(capfd.readouterr().out)
    assert first == {"topic": "orders", "lane": 1, "position": 0, "key": None, "value": "one", "headers": []}
    assert second["value_base64"] == "/w=="
    assert third["value"] is None
    assert sidecar.consumer.outcomes() == [ACK, ACK, ACK]
    assert sidecar.consumer.closed.wait(10)


def test_what_came_before_says_so(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    batch = record.Batch(
        lease=b"l",
        topic="t",
        records=[record.Record(value=b"a", position=1), record.Record(value=b"b", position=2, timestamp_ms=5)],
        redeliveries=[record.Redelivery(first=1, count=1, attempt=2, possibly_processed=True)],
    )
    sidecar.consumer.batches.put(batch)
    assert cli.main(["consume", "orders", "--count", "2"]) == 0
    first, second = lines_of(capfd.readouterr().out)
    assert "attempt" not in first
    assert (second["attempt"], second["possibly_processed"], second["timestamp_ms"]) == (2, True, 5)


def test_a_count_within_a_batch_releases_the_rest(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    sidecar.consumer.add(b"a", b"b", b"c")
    assert cli.main(["consume", "orders", "--count", "2"]) == 0
    assert len(lines_of(capfd.readouterr().out)) == 2
    assert sidecar.consumer.outcomes() == [ACK, ACK, RELEASE]


def test_it_ends_when_nothing_came_for_as_long_as_was_said(
    sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]
) -> None:
    sidecar.consumer.add(b"a")
    assert cli.main(["consume", "orders", "--idle", "50ms"]) == 0
    assert sidecar.consumer.outcomes() == [ACK]


def test_a_peek_gives_everything_back(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    sidecar.consumer.add(b"a", b"b")
    sidecar.consumer.add(b"c", b"d")
    assert cli.main(["consume", "orders", "--count", "3", "--peek"]) == 0
    assert len(lines_of(capfd.readouterr().out)) == 3
    assert sidecar.consumer.outcomes() == [RELEASE] * 4


def test_an_unknown_subscription_is_told_which_there_are(
    sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["consume", "nothing"]) == 1
    assert capsys.readouterr().err == 'offramp: there is no subscription "nothing"; there are: orders\n'


def test_an_ack_that_came_too_late_is_told(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    sidecar.consumer.add(b"a")
    sidecar.consumer.status = record.SETTLE_STATUS_STALE
    assert cli.main(["consume", "orders", "--count", "1"]) == 0
    assert capfd.readouterr().err == "offramp: written records will be delivered again: the lease had expired\n"


def test_a_notice_for_people_goes_to_stderr(sidecar: FakeSidecar, capfd: pytest.CaptureFixture[str]) -> None:
    sidecar.consumer.add(b"a")
    sidecar.consumer.notices = [
        consumer.Notice(kind=consumer.NOTICE_KIND_PAUSED, detail="paused: closed"),
        consumer.Notice(kind=consumer.NOTICE_KIND_DRAINING, detail="the sidecar is stopping"),
    ]
    assert cli.main(["consume", "orders", "--count", "1"]) == 0
    assert capfd.readouterr().err == "offramp: paused: closed\n"


def test_a_reader_that_leaves_gets_only_what_it_took_acked(sidecar: FakeSidecar) -> None:
    # More than a pipe holds, so that the reader leaves in the middle of the batch.
    sidecar.consumer.add(*(b"x" * 1000 for _ in range(500)))
    with consuming() as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline()
        process.stdout.close()
        assert end_of(process) == (0, "")
    outcomes = sidecar.consumer.outcomes()
    acked = outcomes.count(ACK)
    assert 3 <= acked < 500
    assert outcomes == [ACK] * acked + [RELEASE] * (500 - acked)


def test_a_reader_that_leaves_while_nothing_comes_ends_it(sidecar: FakeSidecar) -> None:
    with consuming() as process:
        assert sidecar.consumer.fetched.wait(30)
        assert process.stdout is not None
        process.stdout.close()
        assert end_of(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(sidecar: FakeSidecar, number: signal.Signals) -> None:
    sidecar.consumer.add(b"a", b"b")
    with consuming() as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.stdout.readline()
        process.send_signal(number)
        assert end_of(process) == (0, "")
    assert sidecar.consumer.outcomes() == [ACK, ACK]


def test_a_signal_ends_it_though_the_reader_has_stopped_reading(sidecar: FakeSidecar) -> None:
    sidecar.consumer.add(*(b"x" * 1000 for _ in range(500)))
    with consuming() as process:
        assert process.stdout is not None
        while waiting_in(process.stdout.fileno()) < 40_000:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert end_of(process) == (0, "")
        written = process.stdout.read()
    # Whole lines only, and exactly those are acked.
    acked = written.count(b"\n")
    assert written.endswith(b"\n")
    assert sidecar.consumer.outcomes() == [ACK] * acked + [RELEASE] * (500 - acked)


def test_a_line_counts_only_when_the_pipe_has_all_of_it() -> None:
    reading, writing = os.pipe()
    sink = LineSink(writing)
    polls = iter(range(3))
    line = b"y" * 50_000 + b"\n"
    assert sink.write([line, line], lambda: next(polls, None) is None) == 1
    os.close(reading)
    assert sink.write([b"x\n"], lambda: False) == 0
    assert sink.reader_gone
    os.close(writing)

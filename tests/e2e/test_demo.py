"""`offramp demo`: it accounts for every record, it cleans up behind itself, and it is able to fail."""

import asyncio
import contextlib
import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.cli.demo import orders
from sidecar.cli.demo.audit import AuditResult, audit
from sidecar.cli.demo.broker_state import BrokerState, read_broker_state
from sidecar.cli.demo.journal import Action, Journal, JournalEntry, JournalSummary, read_journals
from sidecar.cli.demo.orders import Kind
from sidecar.cli.demo.plan import SUBSCRIPTION, TOPIC, Folder, Plan
from sidecar.model.records import Commit, Lane, Message, Run
from tests.e2e.harness import OFFRAMP, WAIT_TIMEOUT, eventually, offramp


class Demo(NamedTuple):
    code: int
    output: str
    folder: Folder


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """One run for all tests of it."""
    # Short, because the path of a unix socket must be.
    temporary = tmp_path_factory.mktemp("d")
    ended = offramp("demo", "--quick", "--keep", env={**os.environ, "TMPDIR": str(temporary)}, timeout=280)
    (path,) = temporary.glob("offramp-demo-*")
    return Demo(ended.returncode, ended.stdout + ended.stderr, Folder(path))


def test_every_order_of_a_quick_demo_is_accounted_for(demo: Demo) -> None:
    assert demo.code == 0, demo.output
    assert "PASS  Every order is accounted for." in demo.output
    assert re.search(r"^ {5,}24,000  orders were published$", demo.output, re.MULTILINE)
    assert re.search(r"^ \+ +0  unaccounted for$", demo.output, re.MULTILINE)


def test_the_demo_tells_each_event_in_a_line_that_fits_a_terminal(demo: Demo) -> None:
    events = [line for line in demo.output.splitlines() if re.match(r"\d:\d\d  \S", line)]
    for said in ("kill -9 worker-", "Back at once", "slow on purpose", "parked on disk", "came back", "torn order"):
        assert any(said in line for line in events), f"{said!r} is not in {events}"
    assert max(map(len, events)) <= 80


def test_the_killed_worker_had_orders_in_its_hands_and_others_acked_them(demo: Demo) -> None:
    killed = re.search(r"kill -9 (worker-\d), with ([\d,]+) orders in its hands", demo.output)
    assert killed
    journals = read_journals(demo.folder.journals)
    assert journals.killed == {killed[1]}
    assert int(killed[2].replace(",", "")) > 0
    assert any(journals.received_again.values())


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Where a demo fits: in a deep folder it goes elsewhere, since the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc, which Linux has")
def test_an_interrupted_demo_leaves_no_process_and_no_folder(short_folder: Path) -> None:
    process = subprocess.Popen(
        [*OFFRAMP, "demo", "--quick"],
        env={**os.environ, "TMPDIR": str(short_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "orders are on disk" in line:
            break
    assert _running_in(short_folder), "".join(said)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=WAIT_TIMEOUT)
    assert process.returncode == 130
    assert "Traceback" not in complaints
    eventually(lambda: not _running_in(short_folder), "all processes of the demo have ended")
    assert not [*short_folder.iterdir()]


def _running_in(folder: Path) -> list[int]:
    """Processes that were started with the folder's name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--records", "5"], "--records: 5 is too few"),
        (["--workers", "1"], "--workers: 1 is not from 2 to"),
        (["--records", "many"], '"many" is not a whole number'),
    ],
)
def test_a_demo_that_makes_no_sense_is_refused_in_one_line(arguments: list[str], complaint: str) -> None:
    ended = offramp("demo", *arguments)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1


# The audit must find what is wrong, wherever it is.


@pytest.fixture
def doctored(demo: Demo, tmp_path: Path) -> Folder:
    """A copy of what the demo left, to be tampered with."""
    shutil.copytree(demo.folder.path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
    return Folder(tmp_path / "copy")


def _judge(folder: Folder) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "sidecar.cli.demo.audit", str(folder.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_the_audit_passes_what_nobody_tampered_with(doctored: Folder) -> None:
    code, output = _judge(doctored)
    assert code == 0, output


def test_the_audit_finds_an_order_that_no_worker_acked_although_it_is_committed(doctored: Folder) -> None:
    journal = max(doctored.journals.glob("worker-*.log"), key=lambda path: path.stat().st_size)
    found = re.search(r"^.* acked (orders/1) (\d+)-(\d+)\n", journal.read_text(), re.MULTILINE)
    assert found
    line, lane, first, last = found[0], *found.groups()
    journal.write_text(journal.read_text().replace(line, ""))
    code, output = _judge(doctored)
    missing = int(last) - int(first) + 1
    assert code == 1
    assert f"  {lane}/{first} to {last}: lost: committed, but no worker acked it and it is no dead letter" in output
    assert f"FAIL  {missing} orders" in output
    assert re.search(rf"^ \+ +{missing}  unaccounted for$", output, re.MULTILINE)


def test_the_audit_finds_an_order_that_was_committed_without_ever_being_delivered(doctored: Folder) -> None:
    position = asyncio.run(_publish_and_commit(doctored, Lane(TOPIC, 1)))
    code, output = _judge(doctored)
    assert code == 1
    assert f"  {TOPIC}/1/{position}: lost: committed" in output


async def _publish_and_commit(folder: Folder, lane: Lane) -> int:
    """One more order, over which the group is moved."""
    broker = LocalBroker(LocalOptions(directory=str(folder.data)))
    await broker.open()
    value = orders.encode(999_999, Kind.PLAIN, 0.0)
    (place,) = await broker.publish(lane.topic, [Message(None, value, lane=lane.number)])
    source = broker.subscribe(SourceSpec(SUBSCRIPTION, (lane.topic,)))
    await source.open()
    await source.commit({lane: Commit(place.position + 1)})
    await source.close()
    await broker.close()
    return place.position


class Found(NamedTuple):
    plan: Plan
    broker: BrokerState
    journals: JournalSummary

    def audit(self) -> AuditResult:
        return audit(self.plan, self.broker, self.journals)


@pytest.fixture(scope="module")
def taken(demo: Demo) -> Found:
    return Found(
        Plan.load(demo.folder), asyncio.run(read_broker_state(demo.folder)), read_journals(demo.folder.journals)
    )


@pytest.fixture
def found(taken: Found) -> Found:
    """What the audit reads, to be tampered with in memory."""
    return copy.deepcopy(taken)


def _first_of(found: Found, kind: Kind) -> tuple[Lane, int]:
    return next(spot for spot, known in found.broker.kinds.items() if known is kind)


def _lose_from_the_broker(found: Found) -> None:
    found.broker.published[Lane(TOPIC, 0)].discard(Run(7, 8))


def _forget_a_commit(found: Found) -> None:
    found.broker.committed[Lane(TOPIC, 0)].discard(Run(7, 8))


def _ack_again(found: Found) -> None:
    for name in ("worker-8", "worker-9"):
        found.journals.add(name, JournalEntry(0.0, Action.ACKED, Lane(TOPIC, 0), (Run(7, 8),)))


def _ack_a_dead_letter(found: Found) -> None:
    lane, position = _first_of(found, Kind.REFUND)
    found.journals.add("worker-9", JournalEntry(0.0, Action.ACKED, lane, (Run(position, position + 1),)))


def _ack_what_cannot_be_processed(found: Found) -> None:
    _ack_a_dead_letter(found)
    del found.broker.dead[_first_of(found, Kind.REFUND)]


def _dead_letter_a_good_order(found: Found) -> None:
    letter = found.broker.dead[_first_of(found, Kind.TORN)]
    found.broker.dead[Lane(TOPIC, 0), 7] = letter
    found.journals.acked[Lane(TOPIC, 0)].discard(Run(7, 8))


def _dead_letter_without_enough_attempts(found: Found) -> None:
    lane, position = _first_of(found, Kind.TORN)
    del found.journals.nacked[lane, position]
    found.journals.received_again[lane].discard(Run(position, position + 1))


def _ack_what_was_never_published(found: Found) -> None:
    found.journals.add("worker-9", JournalEntry(0.0, Action.ACKED, Lane(TOPIC, 0), (Run(999_000, 999_001),)))


def _leave_it_parked(found: Found) -> None:
    found.broker.still_parked.add(_first_of(found, Kind.PRE_ORDER))


def _lose_a_dead_letter(found: Found) -> None:
    del found.broker.dead[_first_of(found, Kind.TORN)]


@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        (_lose_from_the_broker, "confirmed to its publisher, but the broker does not have it"),
        (_forget_a_commit, "settled, but not committed"),
        (_ack_again, "acked 3 times without reason, by worker-"),
        (_ack_a_dead_letter, "a dead letter, but a worker acked it"),
        (_ack_what_cannot_be_processed, "acked, but it is refund and cannot have been processed"),
        (_dead_letter_a_good_order, "but nothing is wrong with it"),
        (_dead_letter_without_enough_attempts, "but no worker rejected it and it was tried only 0 times"),
        (_ack_what_was_never_published, "a worker acked it, but it was never published"),
        (_leave_it_parked, "acked, but still parked"),
        (_lose_a_dead_letter, "lost: committed, but no worker acked it"),
    ],
)
def test_the_audit_finds_what_does_not_fit_together(
    found: Found, tamper: Callable[[Found], None], complaint: str
) -> None:
    assert found.audit().balanced
    tamper(found)
    result = found.audit()
    assert not result.balanced
    assert complaint in "\n".join(map(str, result.problems))


def test_an_order_may_be_acked_twice_if_the_first_worker_died_before_it_could_say_so(found: Found) -> None:
    (victim,) = found.journals.killed
    before = found.audit().acked_twice_allowed
    lane, position = next(
        (lane, run.start)
        for lane, runs in found.journals.received_again.items()
        for run in runs
        if run.start in found.journals.acked[lane]
        and not {(lane, run.start)} & (found.journals.repeated.keys() | found.broker.parked)
    )
    found.journals.add(victim, JournalEntry(0.0, Action.ACKED, lane, (Run(position, position + 1),)))
    result = found.audit()
    assert result.acked_twice_allowed == result.acked_twice == before + 1
    assert result.balanced


def test_a_line_that_its_writer_could_not_finish_counts_for_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "worker-1.log")
    journal.write(Action.ACKED, TOPIC, [(0, 1), (0, 2), (0, 5), (3, 9)])
    with (tmp_path / "worker-1.log").open("a") as file:
        file.write("12.5 acked orders/0 100-2")
    journals = read_journals(tmp_path)
    assert [*journals.acked[Lane(TOPIC, 0)]] == [Run(1, 3), Run(5, 6)]
    assert [*journals.acked[Lane(TOPIC, 3)]] == [Run(9, 10)]
    assert journals.killed == {"worker-1"}

"""The embedded broker loses nothing in a kill -9 at any point."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecar.brokers.local import LocalBroker
from sidecar.model.wire import decode_frame
from tests.brokers.harness import EVERYTHING
from tests.brokers.local.harness import positions, running
from tests.brokers.local.killed_process import LANES, OPTIONS, PUBLISHERS, lane

ROUNDS = 100 if os.environ.get("OFFRAMP_TEST_LONG") else 8


@dataclass
class Acknowledged:
    """What calls of all processes together have returned."""

    #: by lane and position
    published: dict[tuple[int, int], str] = field(default_factory=dict)
    #: by lane: the last position whose commit has returned
    committed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(LANES), 0))
    #: by lane: positions of commits after that which have not returned, and may have been stored
    committing: dict[int, set[int]] = field(default_factory=lambda: {number: set() for number in range(LANES)})

    def read(self, log: Path) -> None:
        # The last line may be incomplete.
        complete, _, _ = log.read_text().rpartition("\n")
        for line in complete.splitlines():
            match json.loads(line):
                case ["published", number, position, value]:
                    assert (number, position) not in self.published, "a position was given twice"
                    self.published[number, position] = value
                case ["committing", number, position]:
                    self.committing[number].add(position)
                case ["committed", number, position]:
                    self.committed[number] = position
                    self.committing[number].clear()


@pytest.mark.timeout(60 + 3 * ROUNDS)
def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(ROUNDS)
    acknowledged = Acknowledged()
    for run in range(ROUNDS):
        log = tmp_path / f"log-{run}"
        _run_and_kill(tmp_path / "data", log, run, rng.uniform(0.0, 0.4))
        acknowledged.read(log)
        asyncio.run(_check(tmp_path / "data", acknowledged))
    assert len(acknowledged.published) > ROUNDS * 50, "hardly anything was published: the test shows nothing"


def _run_and_kill(data: Path, log: Path, run: int, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.brokers.local.killed_process", str(data), str(log), str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        # Not to wait for something: to kill it at a random moment.
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)


async def _check(data: Path, acknowledged: Acknowledged) -> None:
    async with running(data, **OPTIONS) as broker:
        (committed,) = (await positions(broker)).values()
        for number in range(LANES):
            position = committed[lane(number)]
            assert position in {acknowledged.committed[number], *acknowledged.committing[number]}
            # The next process continues there.
            acknowledged.committed[number] = position
            acknowledged.committing[number].clear()
            await _check_lane(broker, number, acknowledged)
    connection = sqlite3.connect(data / "offramp.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def _check_lane(broker: LocalBroker, number: int, acknowledged: Acknowledged) -> None:
    ends = (await broker.lane_ends(lane(number).topic))[lane(number)]
    assert ends.start <= acknowledged.committed[number] <= ends.end, "retention removed what was not settled"
    chunks = [chunk async for chunk in broker.read(lane(number), EVERYTHING, 1 << 20)]
    records = [decode_frame(frame) for chunk in chunks for frame in chunk.frames]
    assert [record.position for record in records] == list(range(ends.start, ends.end)), "there is a gap"
    values = {record.position: (record.value or b"").decode() for record in records}
    for (at_lane, position), value in acknowledged.published.items():
        if at_lane == number and position >= ends.start:
            assert values.get(position) == value
    for who in range(number, PUBLISHERS, LANES):
        told = [tuple(map(int, value.split()[0].split(":"))) for value in values.values()]
        mine = [(run, count) for run, publisher, count in told if publisher == who]
        assert mine == sorted(mine), "a publisher's records are out of order"

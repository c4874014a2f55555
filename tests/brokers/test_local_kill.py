"""The embedded broker survives kill -9 at any point."""

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
from sidecar.model.records import Run
from sidecar.model.wire import decode_frame
from tests.brokers.local import play, running
from tests.brokers.victim import LANES, OPTIONS, PUBLISHERS, lane

ROUNDS = 100 if os.environ.get("OFFRAMP_TEST_LONG") else 8


@dataclass
class Promised:
    """What all lives together were promised."""

    #: by lane and position
    published: dict[tuple[int, int], str] = field(default_factory=dict)
    #: by lane: the last position whose commit was answered
    committed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(LANES), 0))
    #: by lane: positions that were sent after that, and may have arrived
    committing: dict[int, set[int]] = field(default_factory=lambda: {number: set() for number in range(LANES)})

    def read(self, diary: Path) -> None:
        # The last line may have been cut by the kill.
        complete, _, _ = diary.read_text().rpartition("\n")
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
def test_a_killed_process_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    dice = random.Random(ROUNDS)
    promised = Promised()
    for life in range(ROUNDS):
        diary = tmp_path / f"diary-{life}"
        _live_and_die(tmp_path / "data", diary, life, dice.uniform(0.0, 0.4))
        promised.read(diary)
        play(lambda: _check(tmp_path / "data", promised))
    assert len(promised.published) > ROUNDS * 50, "hardly anything was published: the test shows nothing"


def _live_and_die(data: Path, diary: Path, life: int, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.brokers.victim", str(data), str(diary), str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout
        assert victim.stdout.readline() == "started\n"
        # Not to wait for something: to die at any moment.
        time.sleep(seconds)
        victim.send_signal(signal.SIGKILL)


async def _check(data: Path, promised: Promised) -> None:
    async with running(data, **OPTIONS) as broker:
        (group,) = await broker.groups()
        for number in range(LANES):
            position = group.positions[lane(number)]
            assert position in {promised.committed[number], *promised.committing[number]}
            # From here on the next life goes on from it.
            promised.committed[number] = position
            promised.committing[number].clear()
            await _check_lane(broker, number, promised)
    connection = sqlite3.connect(data / "offramp.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def _check_lane(broker: LocalBroker, number: int, promised: Promised) -> None:
    ends = (await broker.lane_ends(lane(number).topic))[lane(number)]
    assert ends.start <= promised.committed[number] <= ends.end, "retention removed what was not settled"
    chunks = [chunk async for chunk in broker.read(lane(number), Run(0, 1 << 60), 1 << 20)]
    records = [decode_frame(frame) for chunk in chunks for frame in chunk.frames]
    assert [record.position for record in records] == list(range(ends.start, ends.end)), "there is a gap"
    values = {record.position: (record.value or b"").decode() for record in records}
    for (at_lane, position), value in promised.published.items():
        if at_lane == number and position >= ends.start:
            assert values.get(position) == value
    for who in range(number, PUBLISHERS, LANES):
        told = [tuple(map(int, value.split()[0].split(":"))) for value in values.values()]
        mine = [(life, count) for life, publisher, count in told if publisher == who]
        assert mine == sorted(mine), "a publisher's records are out of order"

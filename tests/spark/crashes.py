"""Kills drivers, executors and sidecars at random points, and checks that each record reached the sink exactly once."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from offramp import Message, Publisher
from offramp.errors import Unavailable
from offramp.v1 import log_pb2, log_pb2_grpc
from tests.e2e.harness import Sidecar, eventually
from tests.spark.environment import CLICKS

#: seconds that a driver may take to do something on a busy machine
DRIVER_TIMEOUT = 480.0


class Driver:
    """One process after another with the same checkpoint; each may have executors as children."""

    def __init__(self, folder: Path, master: str, address: str, subscription: str, workers: Sequence[int] = ()) -> None:
        """`workers` are processes of a cluster that start executors, where the driver does not start them itself."""
        self.folder = folder
        self._workers = workers
        folder.mkdir()
        self._command = [master, address, subscription, str(folder)]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "driver.log"

    def start(self, *more: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.pipeline", *self._command, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "SPARK_WORKER_DIR": str(self.folder / "work")},
                # Of its own group, so that its JVM can be killed with it.
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 of Python and JVM alike."""
        if self._process is not None:
            # Executors live in sessions of their own; those of a driver that is gone must not read on.
            children = descendants(self._process.pid)
            for pid in [self._process.pid, *children]:
                kill(pid)
            self._process.wait(DRIVER_TIMEOUT)

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def keep_running(self) -> None:
        """Start it again if a crash elsewhere has ended its query."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def die(self) -> None:
        """Let it die between its first batch and Spark's note that the batch is done."""
        self.start("--dies")
        assert self._process is not None
        assert self._process.wait(DRIVER_TIMEOUT) == -signal.SIGKILL, self.log
        assert self.journal(), "it died before its first batch"

    def finish(self) -> None:
        """Do what is left, and end in order."""
        self.start("--until-done")
        assert self._process is not None
        assert self._process.wait(DRIVER_TIMEOUT) == 0, self.log

    def executors(self) -> list[int]:
        """JVMs that run tasks for the driver; Python workers where it runs them itself."""
        assert self._process is not None
        parents = self._workers or [self._process.pid]
        children = {pid: command(pid) for parent in parents for pid in descendants(parent)}
        backends = [pid for pid, text in children.items() if "CoarseGrainedExecutorBackend" in text]
        return backends or [pid for pid, text in children.items() if "pyspark.daemon" in text]

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5_000:]

    def journal(self) -> list[dict[str, object]]:
        path = self.folder / "journal"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def rows(self) -> list[list[object]]:
        """Of all batches in the sink."""
        return [
            row for path in sorted((self.folder / "out").glob("[0-9]*.json")) for row in json.loads(path.read_text())
        ]


class Rounds:
    """Publishes all the while; each round kills each of the three once, in random order, at random points."""

    def __init__(
        self, driver: Driver, sidecar: Sidecar, publisher: Publisher, topic: str, *, seed: int, rounds: int
    ) -> None:
        self._driver = driver
        self._sidecar = sidecar
        self._publisher = publisher
        self._topic = topic
        self._random = random.Random(seed)
        self._rounds = rounds
        self._stop = threading.Event()
        self._published: set[bytes] = set()

    def play(self) -> None:
        publisher = threading.Thread(target=self._keep_publishing)
        publisher.start()
        try:
            # Whatever chance brings later, one batch comes again.
            self._driver.die()
            self._driver.start()
            self._progress()
            for _ in range(self._rounds):
                kills = [self._kill_driver, self._kill_executor, self._kill_sidecar]
                self._random.shuffle(kills)
                for kill_ in kills:
                    # At random points: within a batch, within a plan, within a commit.
                    self._stop.wait(self._random.uniform(0.0, 1.5))
                    kill_()
                    self._progress()
        finally:
            self._stop.set()
            publisher.join()
            self._driver.kill()
        self._driver.finish()

    def check(self) -> None:
        """Every record of the topic once, to the byte; and each batch the same whenever it was given to the sink."""
        there = log_of(self._sidecar)
        rows = [
            (str(row[0]), int(str(row[1])), int(str(row[2])), bytes.fromhex(str(row[3]))) for row in self._driver.rows()
        ]
        assert len(rows) == len(set(rows)), "a record is there twice"
        assert sorted(rows) == sorted(there), "a record is missing, or another than in the topic"
        assert self._published == {value for *_, value in there}, "the test itself has lost a record"
        eventually(self._is_all_committed, "all of it is committed")
        digests: dict[object, object] = {}
        again = 0
        for line in self._driver.journal():
            again += line["batch"] in digests and bool(line["rows"])
            assert digests.setdefault(line["batch"], line["digest"]) == line["digest"], f"{line} is another than before"
        assert again, "no batch came again, so that nothing was shown"

    def _is_all_committed(self) -> bool:
        lanes = self._sidecar.status(CLICKS).lanes
        return bool(lanes) and all(lane.committed == lane.end for lane in lanes)

    def _keep_publishing(self) -> None:
        number = 0
        while not self._stop.is_set():
            values = [b"%08d" % n for n in range(number, number + 20)]
            number += 20
            self._send([Message(value, key=value[-2:], headers={"n": value}) for value in values])
            self._published.update(values)
            self._stop.wait(0.1)

    def _send(self, messages: list[Message]) -> None:
        while True:
            try:
                self._publisher.publish_many(self._topic, messages)
                return
            except Unavailable:
                # The sidecar was killed. What it had taken is in the topic twice then, at two positions.
                continue

    def _progress(self) -> None:
        """Waits for batches that were not there before."""
        before = len(self._driver.journal())

        def moved() -> bool:
            self._driver.keep_running()
            return len(self._driver.journal()) >= before + 2

        try:
            eventually(moved, "the query goes on", DRIVER_TIMEOUT)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._driver.log}") from error

    def _kill_driver(self) -> None:
        self._driver.kill()

    def _kill_executor(self) -> None:
        def found() -> list[int]:
            # There is none while a driver starts that has just ended.
            self._driver.keep_running()
            return self._driver.executors()

        kill(eventually(found, "there is an executor to kill", DRIVER_TIMEOUT)[0])

    def _kill_sidecar(self) -> None:
        self._sidecar.restart()


def log_of(sidecar: Sidecar, subscription: str = CLICKS) -> list[tuple[str, int, int, bytes]]:
    """What is in the topics, read without Spark and without the bridge."""
    with sidecar.channel() as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        earliest = log_pb2.LocateRequest(subscription=subscription, earliest=log_pb2.StartEarliest())
        latest = log_pb2.LocateRequest(subscription=subscription, latest=log_pb2.StartLatest())
        ends = {(one.topic, one.lane): one.position for one in stub.Locate(latest).positions}
        found = []
        for one in stub.Locate(earliest).positions:
            request = log_pb2.ReadRangeRequest(
                subscription=subscription,
                topic=one.topic,
                lane=one.lane,
                start=one.position,
                until=ends[one.topic, one.lane],
            )
            for answer in stub.ReadRange(request):
                found += [(one.topic, record.lane, record.position, record.value) for record in answer.records]
    return found


def descendants(pid: int) -> list[int]:
    """All children of a process, and theirs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

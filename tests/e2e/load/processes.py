"""The worker processes and the publisher of a test."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import grpc

from tests.e2e.harness import WAIT_TIMEOUT, Sidecar, eventually
from tests.e2e.load.kinds import Kind, make

TOPIC = "orders"
LANES = 4
#: small and quick, so that much happens in little time
SUBSCRIPTION: Mapping[str, Any] = {
    "topics": [TOPIC],
    "batch": {"records": 20},
    "window": {"records": 400},
    "commit_every": "20ms",
    "retry": {"first": "50ms", "max": "400ms", "attempts": 3},
    "parking": {"after": "500ms"},
    # Rejects are part of the load. Failures are too: a probe soon tells that they are not an outage.
    "outage": {"reject_share": 1, "probe_first": "20ms", "probe_max": "100ms"},
}


def sidecar_for(folder: Path, *, drain: str = "10s") -> Sidecar:
    """A sidecar that is not started yet."""
    data = {"type": "local", "directory": str(folder / "data"), "lanes": LANES, "reserve_bytes": "1MiB"}
    return Sidecar(folder, subscriptions={TOPIC: SUBSCRIPTION}, brokers={"local": data}, drain={"deadline": drain})


class Workers:
    """Worker processes. Those that were killed are replaced by `replace_killed`."""

    def __init__(self, sidecar: Sidecar, *ways: str, slow: float = 0.2, stuck: float = 0.2) -> None:
        self.journals: list[Path] = []
        self.sidecar = sidecar
        self._naps = (slow, stuck)
        self._ways = ways
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._processes = [self._start(way) for way in self._ways]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(WAIT_TIMEOUT)

    def replace_killed(self) -> None:
        """Replace workers that have died."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                assert process.returncode == -signal.SIGKILL, f"a worker ended with {process.returncode}"
                self._processes[number] = self._start(self._ways[number])

    def kill_one(self, chance: random.Random) -> None:
        """kill -9."""
        chance.choice(self._processes).kill()

    def _start(self, way: str) -> "subprocess.Popen[bytes]":
        journal = self.sidecar.folder / f"journal-{len(self.journals)}"
        self.journals.append(journal)
        return start_worker(way, self.sidecar.target, journal, *self._naps)


def start_worker(
    way: str,
    target: str,
    journal: Path,
    slow: float = 0.2,
    stuck: float = 0.2,
    *,
    overdue: float = 0.0,
    lease: float = 0.0,
    log: Path | None = None,
) -> "subprocess.Popen[bytes]":
    """A worker process; see `worker` for its ways. `php` is one in PHP. `log`: the file for its output."""
    journal.touch()
    if way == "php":
        command = ["php", str(Path(__file__).with_name("worker.php"))]
    else:
        command = [sys.executable, "-m", "tests.e2e.load.worker", way]
    with log.open("ab") if log is not None else nullcontext() as said:
        return subprocess.Popen(
            [*command, target, str(journal), *map(str, (slow, stuck, overdue, lease))],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def settle_everything(workers: Workers, publisher: "Publisher") -> None:
    """Waits until nothing is left to do. Good records go on meanwhile: failures alone would be an outage."""

    def is_settled() -> bool:
        workers.replace_killed()
        publisher.publish(Kind.OK)
        try:
            eventually(lambda: not any(lane.lag for lane in workers.sidecar.status().lanes), timeout=5.0)
        except AssertionError:
            return False
        return True

    eventually(is_settled, "everything is settled", timeout=180.0)


class Publisher:
    """Publishes records of all kinds, and only believes what the sidecar confirmed."""

    def __init__(self, sidecar: Sidecar, chance: random.Random, shares: Mapping[Kind, float]) -> None:
        #: values whose publishing the sidecar has confirmed
        self.confirmed: set[bytes] = set()
        self._sidecar = sidecar
        self._chance = chance
        self._shares = shares
        self._numbers = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(WAIT_TIMEOUT)

    def publish(self, *kinds: Kind) -> None:
        """Until it is confirmed. What was not may be there all the same; then it is published again."""
        while True:
            values = [make(kind, self._numbers + number) for number, kind in enumerate(kinds)]
            self._numbers += len(values)
            try:
                self._sidecar.publish(TOPIC, values)
            except grpc.RpcError:
                if self._stopped.wait(0.02):
                    return
                continue
            self.confirmed.update(values)
            return

    def _run(self) -> None:
        kinds, weights = zip(*self._shares.items(), strict=True)
        while not self._stopped.is_set():
            self.publish(*self._chance.choices(kinds, weights, k=40))
            # A pace that the workers can keep, so that a test ends soon after its load.
            time.sleep(0.05)

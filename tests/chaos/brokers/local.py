"""The embedded broker: it starts and ends with its sidecar."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.brokers.base import Broker, RoundTopic
from tests.chaos.brokers.side_topics import dead_letter_of, parked_record_of
from tests.chaos.checker.history import RETRY, TOPIC, BrokerSnapshot, Commit, Stored
from tests.chaos.faults import FaultKind
from tests.chaos.plan import Plan
from tests.e2e.load.database import Database, headers_of
from tests.e2e.load.journal import Spot

_SMALL_DISK = "24m"
_RESERVE = "1MiB"


class LocalBroker(Broker):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        probe = folder / "probe"
        probe.mkdir(parents=True)
        # In a container even root may lack the right.
        if _mount(probe):
            _unmount(probe)
        else:
            self.cannot = {
                FaultKind.FILL_DISK: "a small disk is mounted for it, which takes root and the right to mount"
            }

    def new_topic(self, plan: Plan, folder: Path) -> RoundTopic:
        return LocalTopic(folder / "data", plan.lanes, small=any(f.kind is FaultKind.FILL_DISK for f in plan.faults))


class LocalTopic(RoundTopic):
    def __init__(self, data: Path, lanes: int, *, small: bool) -> None:
        super().__init__()
        self._data = data
        self._database = Database(data)
        self._lanes = lanes
        self._small = small
        data.mkdir()
        if small:
            assert _mount(data), "a small disk cannot be mounted"

    def broker_settings(self, who: str) -> Mapping[str, Any]:
        told = {"directory": str(self._data), "lanes": self._lanes, "reserve_bytes": _RESERVE}
        return {"type": "local", **told}

    def publisher_address(self, socket: str) -> str:
        return f"unix:{socket}"

    def commits(self) -> list[Commit]:
        cursors = self._database.cursors(self.group)
        now = time.monotonic()
        return [Commit(now, TOPIC if topic == self.name else RETRY, lane, runs) for topic, lane, runs in cursors]

    def is_done(self) -> bool:
        try:
            done = {(topic, lane): runs[0][1] for topic, lane, runs in self._database.cursors(self.group)}
            ends = self._database.ends()
        except OSError:
            return False
        return bool(done) and all(ends[lane] == position for lane, position in done.items())

    def snapshot(self) -> BrokerSnapshot:
        snapshot = BrokerSnapshot(commits=self.commits())
        for record in self._database.records(self.name):
            snapshot.records[Spot(record.lane, record.position)] = Stored(_text(record.key), record.value.decode())
        for record in self._database.records(f"{self.group}.offramp.dead"):
            snapshot.dead_letters.append(dead_letter_of(_text(record.key), record.value.decode(), headers_of(record)))
        for record in self._database.records(f"{self.group}.offramp.retry"):
            snapshot.parked.append(parked_record_of(Spot(record.lane, record.position), headers_of(record)))
        return snapshot

    def fill_disk(self) -> None:
        with (self._data / "ballast").open("ab", buffering=0) as ballast:
            try:
                while ballast.write(bytes(1 << 16)):
                    pass
            except OSError:
                return

    def free_disk(self) -> None:
        (self._data / "ballast").unlink(missing_ok=True)

    def close(self, keep: Path | None) -> None:
        if self._small:
            if keep is not None:
                shutil.copytree(self._data, keep / "disk", ignore=shutil.ignore_patterns("ballast"))
            _unmount(self._data)


def _mount(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True)


def _text(key: bytes) -> str | None:
    return key.decode() or None

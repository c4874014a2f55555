"""The embedded broker: it lives and dies with its sidecar."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.acts import Act
from tests.chaos.history import RETRY, TOPIC, Claim, Stock, Stored
from tests.chaos.plan import Plan
from tests.chaos.stages.base import Scene, Stage
from tests.chaos.stages.letters import letter_of, stay_of
from tests.e2e.load.database import Database, headers_of
from tests.e2e.load.journal import Spot

_SMALL_DISK = "24m"
_RESERVE = "1MiB"


class LocalStage(Stage):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        probe = folder / "probe"
        probe.mkdir(parents=True)
        # Also root may not, in a container.
        if _mount(probe):
            _unmount(probe)
        else:
            self.cannot = {Act.FILL_DISK: "a small disk is mounted for it, which takes root and the right to mount"}

    def scene(self, plan: Plan, folder: Path) -> Scene:
        return LocalScene(folder / "data", plan.lanes, small=any(f.act is Act.FILL_DISK for f in plan.faults))


class LocalScene(Scene):
    def __init__(self, data: Path, lanes: int, *, small: bool) -> None:
        super().__init__()
        self._data = data
        self._database = Database(data)
        self._lanes = lanes
        self._small = small
        data.mkdir()
        if small:
            assert _mount(data), "a small disk cannot be mounted"

    @property
    def broker_settings(self) -> Mapping[str, Any]:
        told = {"directory": str(self._data), "lanes": self._lanes, "reserve_bytes": _RESERVE}
        return {"type": "local", **told}

    def publisher_address(self, socket: str) -> str:
        return f"unix:{socket}"

    def claims(self) -> list[Claim]:
        cursors = self._database.cursors(self.group)
        now = time.monotonic()
        return [Claim(now, TOPIC if topic == self.topic else RETRY, lane, runs) for topic, lane, runs in cursors]

    def is_done(self) -> bool:
        try:
            done = {(topic, lane): runs[0][1] for topic, lane, runs in self._database.cursors(self.group)}
            ends = self._database.ends()
        except OSError:
            return False
        return bool(done) and all(ends[lane] == position for lane, position in done.items())

    def stock(self) -> Stock:
        stock = Stock(claims=self.claims())
        for record in self._database.records(self.topic):
            stock.records[Spot(record.lane, record.position)] = Stored(_text(record.key), record.value.decode())
        for record in self._database.records(f"{self.group}.offramp.dead"):
            stock.letters.append(letter_of(_text(record.key), record.value.decode(), headers_of(record)))
        for record in self._database.records(f"{self.group}.offramp.retry"):
            stock.stays.append(stay_of(Spot(record.lane, record.position), headers_of(record)))
        return stock

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

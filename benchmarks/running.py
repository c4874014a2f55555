"""A real sidecar process on the embedded broker, and real client processes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import offramp

_CONFIG = """
listen: {{socket: {folder}/offramp.sock}}
http: {{address: ""}}
log: {{level: warning}}
brokers: {{local: {{type: local, directory: {folder}/data}}}}
subscriptions: {{bench: {{topics: [bench], batch: {{records: {batch}}}}}}}
"""
_PATIENCE = 30.0


class Sidecar:
    """Starts `offramp run` in a folder of its own and waits until it serves. Another configuration than that of the
    embedded broker may be given, with `{folder}` and `{batch}` to fill in."""

    def __init__(self, batch: int, config: str = _CONFIG) -> None:
        self._batch = batch
        self._config = config

    def __enter__(self) -> "Sidecar":
        self._folder = tempfile.TemporaryDirectory(prefix="offramp-bench-")
        folder = Path(self._folder.name)
        self.address = f"unix:{folder / 'offramp.sock'}"
        config = folder / "offramp.yaml"
        config.write_text(self._config.format(folder=folder, batch=self._batch))
        began = time.perf_counter()
        self._process = subprocess.Popen([sys.executable, "-m", "sidecar", "run", "-c", str(config)])
        while not (folder / "offramp.sock").exists():
            if self._process.poll() is not None or time.perf_counter() - began > _PATIENCE:
                raise RuntimeError("the sidecar did not start")
            time.sleep(0.002)
        #: seconds from the start of the process to its socket
        self.ready_after = time.perf_counter() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE)
        self._folder.cleanup()

    @property
    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self) -> float:
        """User and system time of the sidecar alone."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def publish(self, records: int, size: int) -> None:
        messages = [offramp.Message(b"x" * size, key=str(number).encode()) for number in range(1_000)]
        with offramp.Publisher(broker="local", address=self.address) as publisher:
            for _ in range(0, records, len(messages)):
                publisher.publish_many("bench", messages)

    def consume(self, records: int, *, workers: int, work: float) -> dict[str, Any]:
        """Consume so many records in a process of its own; answers what `benchmarks.client` says."""
        command = [sys.executable, "-m", "benchmarks.client", self.address, str(records), str(workers), str(work)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE * 4)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

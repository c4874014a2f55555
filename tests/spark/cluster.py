"""A standalone Spark of one master and two workers, started from the pip package."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Self

import pyspark

from tests.e2e.harness import eventually
from tests.servers.process import free_ports
from tests.servers.tools import tool

_START_TIMEOUT = 120.0


class Cluster:
    """Bound to loopback. Ends with the `with` block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._port, self._page, *self._pages = free_ports(4)
        self._log = folder / "cluster.log"
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> list[int]:
        """The processes that start executors."""
        return [process.pid for process in self._running[1:]]

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._start(log, "master.Master", "--port", str(self._port), "--webui-port", str(self._page))
            for number, page in enumerate(self._pages):
                work = ("--work-dir", str(self._folder / f"work-{number}"), "--webui-port", str(page))
                self._start(log, "worker.Worker", "--cores", "1", "--memory", "1g", *work, self.master)
        eventually(self._is_up, "both workers are registered", _START_TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.kill()
            process.wait()

    def _start(self, log: IO[bytes], what: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [tool("java"), "-Xmx512m", "-cp", str(home / "jars" / "*"), f"org.apache.spark.deploy.{what}"]
        (core,) = home.glob("jars/spark-core_*.jar")
        self._running.append(
            subprocess.Popen(
                [*command, "--host", "127.0.0.1", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    # By these a worker finds the jars for its executors.
                    "SPARK_HOME": str(home),
                    "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
                },
            )
        )

    def _is_up(self) -> bool:
        return self._log.read_text(errors="replace").count("Successfully registered with master") == len(self._pages)

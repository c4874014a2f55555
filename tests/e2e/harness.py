"""Runs a real `offramp run` process in a folder of its own, for tests that need the whole thing.

    with Sidecar(tmp_path) as sidecar:
        sidecar.publish("orders", [b"1", b"2"])
        with sidecar.channel() as channel: ...

It listens on a unix socket and a port for HTTP that the kernel chose, uses a local broker in the same folder, and has
one subscription `orders` unless told otherwise. Its log is printed when the test fails.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import pytest

from offramp.v1 import admin_pb2, admin_pb2_grpc, consumer_pb2_grpc, publish_pb2, publish_pb2_grpc

T = TypeVar("T")

OFFRAMP = (sys.executable, "-m", "sidecar")
#: seconds that anything may take on a busy machine before the test gives up
WAIT_TIMEOUT = 60.0


def eventually(look: Callable[[], T], what: str = "", timeout: float = WAIT_TIMEOUT) -> T:
    """Calls `look` until the result is true, and returns that."""
    ends = time.monotonic() + timeout
    while not (seen := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"did not happen within {timeout:g} s: {what or look}; last seen: {seen!r}")
        time.sleep(0.005)
    return seen


@contextmanager
def refused(status: grpc.StatusCode, *words: str) -> Iterator[None]:
    """The call in the block fails with this status, and says these words."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error: Any = caught.value
    assert error.code() is status, error.details()
    for word in words:
        assert word in error.details(), error.details()


def offramp(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Offramp to its end. `options` are those of `subprocess.run`."""
    settings: dict[str, Any] = {
        "capture_output": True,
        "encoding": "utf-8",
        "timeout": WAIT_TIMEOUT,
        "check": False,
        **options,
    }
    return subprocess.run([*OFFRAMP, *arguments], **settings)


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """This process's without what configures a sidecar, but with the choice of the event loop."""
    configures = ("OFFRAMP_", "OTEL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(configures)}
    loop = {name: os.environ[name] for name in ("OFFRAMP_PURE",) if name in os.environ}
    return {**kept, **loop, **given}


class Sidecar:
    """One sidecar process after another, in one folder. Settings are given as in the configuration file."""

    def __init__(
        self,
        folder: Path,
        *,
        subscriptions: Mapping[str, Mapping[str, Any]] | None = None,
        name: str = "offramp",
        socket: Path | None = None,
        environ: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.socket = socket or folder / f"{name}.sock"
        self._config = folder / f"{name}.yaml"
        self._log = folder / f"{name}.log"
        self.settings: dict[str, Any] = {
            "http": {"address": "127.0.0.1:0"},
            "drain": {"deadline": "1s"},
            "log": {"format": "json", "level": "debug"},
            "brokers": {"local": {"type": "local", "directory": str(folder / f"{name}-data")}},
            "subscriptions": subscriptions if subscriptions is not None else {"orders": {"topics": ["orders"]}},
            **settings,
        }
        self.settings["listen"] = {"socket": str(self.socket), **settings.get("listen", {})}
        #: beside what the tests themselves run in, of which nothing that would set up a sidecar is passed on
        self._environ = dict(environ or {})
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    # Life

    def start(self) -> Self:
        """Returns when it is ready."""
        self.launch()
        eventually(self._is_ready, "the sidecar is ready")
        return self

    def launch(self) -> None:
        """Returns at once, for a sidecar that may fail to start."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        # JSON is YAML.
        self._config.write_text(json.dumps(self.settings))
        self._log_start = self.log_size
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*OFFRAMP, "run", "--config", str(self._config), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(self._environ),
            )

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the sidecar ended with {self.process.returncode} instead of starting:\n{self.log}")
        return any(event["message"] == "ready" for event in self.events()) and self.get("/readyz")[0] == 200

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self.process.kill()
        self.process.wait(WAIT_TIMEOUT)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def terminate(self) -> int:
        """SIGTERM, and wait for the end. Returns the exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self, timeout: float = WAIT_TIMEOUT) -> int:
        return self.process.wait(timeout)

    def restart(self) -> None:
        """kill -9 and start again."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(WAIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                print(f"the sidecar did not stop on SIGTERM\n{self.log}")
                if error is None:
                    raise
        if error is not None:
            print(f"--- log of the sidecar in {self.folder}\n{self.log}---")

    # What it says

    @property
    def log(self) -> str:
        """Of this process only."""
        return self._log.read_bytes()[self._log_start :].decode(errors="replace")

    @property
    def log_size(self) -> int:
        """Of all processes."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_since(self, size: int) -> str:
        """What was written since the log of all processes had this size."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """The lines of its log, without one that is still being written."""
        lines = self.log.split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def event(self, message: str) -> dict[str, Any]:
        """Waits for an event in its log."""
        return eventually(lambda: next((e for e in self.events() if e["message"] == message), None) or {}, message)

    @property
    def http(self) -> str:
        """host:port for HTTP."""
        address: str = self.event("ready")["http"]
        return address

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body of a page."""
        request = urllib.request.Request(f"http://{self.http}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [
            float(line.rpartition(" ")[2])
            for line in self.get("/metrics")[1].splitlines()
            if line.split("{")[0].split(" ")[0] == name and all(one in line for one in wanted)
        ]
        assert found, f"there is no metric {name} with {labels}"
        return sum(found)

    # Talking to it

    @property
    def target(self) -> str:
        """For `grpc.insecure_channel`."""
        return f"unix:{self.socket}"

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(self.target) as channel:
            yield channel

    @contextmanager
    def consumer(self) -> Iterator[Any]:
        """A stub of the consumer service."""
        with self.channel() as channel:
            yield consumer_pb2_grpc.ConsumerServiceStub(channel)

    def publish(
        self, topic: str, values: Iterable[bytes], *, lane: int | None = None, broker: str = "local"
    ) -> list[tuple[int, int]]:
        """Returns lane and position of each."""
        messages = [publish_pb2.Message(value=value, lane=lane) for value in values]
        request = publish_pb2.PublishRequest(broker=broker, topic=topic, messages=messages)
        with self.channel() as channel:
            response = publish_pb2_grpc.PublishServiceStub(channel).Publish(request, timeout=WAIT_TIMEOUT)
        return [(one.lane, one.position) for one in response.published]

    def status(self, subscription: str = "orders") -> admin_pb2.SubscriptionStatus:
        request = admin_pb2.GetStatusRequest(subscription=subscription)
        with self.channel() as channel:
            response = admin_pb2_grpc.AdminServiceStub(channel).GetStatus(request, timeout=WAIT_TIMEOUT)
        return response.status.subscriptions[0]


class Worker:
    """A worker process; see `tests/e2e/worker.py`. It is killed at the end."""

    def __init__(self, sidecar: Sidecar, mode: str, *, target: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.worker", mode, target or sidecar.target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )

    def event(self, kind: str) -> dict[str, Any]:
        """The next event, which must be of this kind."""
        event = self._next()
        assert event["event"] == kind, event
        return event

    def _next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        event: dict[str, Any] = json.loads(line)
        return event

    def batch(self) -> dict[str, Any]:
        """The next batch. Skips events before it."""
        while (event := self._next())["event"] != "batch":
            assert event["event"] in ("welcome", "fetching"), event
        return event

    def tell(self) -> None:
        """Let it settle what it holds."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

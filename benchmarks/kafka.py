"""A sidecar on a real Kafka, beside a direct, tuned confluent-kafka consumer on the same topic.

`python -m benchmarks.kafka [--only NAME] [--repeats N] [--records N]`. It starts a Kafka of its own. Direct and sidecar
take turns, and each ratio is of one turn of both. What is missed is printed as such.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.rows import Goal, Row, table
from tests.servers.kafka import QUIET, KafkaServer

_LANES = 8
_BATCH = 500
_PATIENCE = 300.0
#: of the latency rows: records, and seconds between two of them
_LATENCY_RECORDS, _PACE = 1_000, 0.005
#: of the row of a slow lane
_MANY_LANES, _PER_LANE, _SLOW = 40, 10_000, 0.5
#: as anybody's broker, not as that of a test
_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")


@dataclass
class Process:
    """A sidecar, and what it costs."""

    pid: int
    address: str

    @property
    def cpu_seconds(self) -> float:
        """User and system time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def most_resident_mb(self) -> float:
        """The most that it ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6


@contextmanager
def sidecar(kafka: KafkaServer, topic: str, **settings: Any) -> Iterator[Process]:
    """With a group of its own, ready to be asked."""
    with tempfile.TemporaryDirectory(prefix="offramp-bench-") as folder:
        socket = Path(folder) / "offramp.sock"
        subscription = {
            "broker": "kafka",
            "topics": [topic],
            "group": f"sidecar-{time.time_ns()}",
            "batch": {"records": _BATCH},
            **settings,
        }
        config = {
            "listen": {"socket": str(socket)},
            "http": {"address": ""},
            "log": {"level": "warning"},
            "brokers": {"kafka": {"type": "kafka", "servers": [kafka.bootstrap]}},
            "subscriptions": {"bench": subscription},
        }
        path = Path(folder) / "offramp.yaml"
        path.write_text(json.dumps(config))
        process = subprocess.Popen([sys.executable, "-m", "sidecar", "run", "-c", str(path)])
        try:
            ends = time.monotonic() + _PATIENCE
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > ends:
                    raise RuntimeError("the sidecar did not start")
                time.sleep(0.005)
            yield Process(process.pid, f"unix:{socket}")
        finally:
            process.terminate()
            process.wait(_PATIENCE)


def _run(module: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def _fill(kafka: KafkaServer, topic: str, lanes: int, records: int, size: int) -> None:
    kafka.make_topic(topic, lanes)
    settings = {**kafka.settings(), "linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(settings, logger=QUIET)
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, str(number).encode(), number % lanes)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(_PATIENCE)


@dataclass
class Bench:
    """Figures by name: one value for each repeat."""

    kafka: KafkaServer
    records: int
    values: dict[str, list[float]] = field(default_factory=dict)

    def note(self, **values: float) -> None:
        for name, value in values.items():
            self.values.setdefault(name.replace("_", "-"), []).append(value)
            print(f"  {name.replace('_', '-')}: {value:.4g}", file=sys.stderr)

    def throughput(self, topic: str, size: str) -> None:
        """One turn of each."""
        direct = _run("benchmarks.kafka_consumers", "direct", self.kafka.bootstrap, topic, self.records)
        with sidecar(self.kafka, topic) as process:
            before = process.cpu_seconds
            done = _run("benchmarks.client", process.address, self.records, 4, 0.0)
            cpu = process.cpu_seconds - before
            memory = process.most_resident_mb
        rates = [one["records"] / one["seconds"] for one in (done, direct)]
        self.note(
            **{
                f"kafka_ratio_{size}": rates[0] / rates[1],
                f"kafka_rate_{size}": rates[0],
                f"kafka_direct_{size}": rates[1],
                f"kafka_cpu_{size}": cpu / done["records"] * 1e6,
                f"kafka_direct_cpu_{size}": direct["cpu"] / direct["records"] * 1e6,
                f"kafka_memory_{size}": memory,
            }
        )

    def slow_lane(self, topic: str) -> None:
        rates = []
        for slow in (0.0, _SLOW):
            with sidecar(self.kafka, topic, order="lane", batch={"records": 50}) as process:
                records = (_MANY_LANES - 1) * _PER_LANE
                done = _run("benchmarks.kafka_consumers", "lanes", process.address, records, slow)
            rates.append(done["records"] / done["seconds"])
        self.note(kafka_slow_lane=rates[1] / rates[0])

    def latency(self, number: int) -> None:
        found: dict[str, Mapping[str, float]] = {}
        for way in ("direct", "sidecar"):
            topic = f"latency-{way}-{number}"
            self.kafka.make_topic(topic, 1)
            if way == "direct":
                arguments: list[object] = ["direct-latency", self.kafka.bootstrap, topic, _LATENCY_RECORDS]
                found[way] = self._timed(topic, arguments)
            else:
                with sidecar(self.kafka, topic) as process:
                    found[way] = self._timed(topic, ["latency", process.address, _LATENCY_RECORDS])
        self.note(
            kafka_latency_p50=(found["sidecar"]["p50"] - found["direct"]["p50"]) * 1e3,
            kafka_latency_p99=(found["sidecar"]["p99"] - found["direct"]["p99"]) * 1e3,
            kafka_direct_p50=found["direct"]["p50"] * 1e3,
            kafka_direct_p99=found["direct"]["p99"] * 1e3,
        )

    def _timed(self, topic: str, arguments: list[object]) -> Mapping[str, float]:
        """Publishes at a steady pace; the first records, while the consumer starts, are not counted."""
        command = [sys.executable, "-m", "benchmarks.kafka_consumers", *map(str, arguments)]
        producer = Producer({**self.kafka.settings(), "linger.ms": 0}, logger=QUIET)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
            # It has joined by then; what it finds at its start would be old, so there is nothing.
            time.sleep(4.0)
            for _ in range(_LATENCY_RECORDS):
                producer.produce(topic, str(time.monotonic_ns()).encode(), partition=0)
                producer.poll(0)
                time.sleep(_PACE)
            producer.flush(_PATIENCE)
            said, _ = consumer.communicate(timeout=_PATIENCE)
        found: Mapping[str, float] = json.loads(said)
        return found


#: unit and goal by name
_ROWS: Mapping[str, tuple[str, Goal | None]] = {
    "kafka-ratio-100": ("of the direct rate", None),
    "kafka-rate-100": ("records/s", None),
    "kafka-direct-100": ("records/s, direct", None),
    "kafka-cpu-100": ("CPU s per million", Goal(6, at_least=False)),
    "kafka-direct-cpu-100": ("CPU s per million, direct", None),
    "kafka-memory-100": ("MB resident at the most", Goal(200, at_least=False)),
    "kafka-ratio-1k": ("of the direct rate", None),
    "kafka-rate-1k": ("records/s", None),
    "kafka-direct-1k": ("records/s, direct", None),
    "kafka-cpu-1k": ("CPU s per million", None),
    "kafka-direct-cpu-1k": ("CPU s per million, direct", None),
    "kafka-memory-1k": ("MB resident at the most", Goal(200, at_least=False)),
    "kafka-slow-lane": ("of the others' rate", Goal(0.95, at_least=True)),
    "kafka-latency-p50": ("ms more than direct", None),
    "kafka-latency-p99": ("ms more than direct", None),
    "kafka-direct-p50": ("ms, direct", None),
    "kafka-direct-p99": ("ms, direct", None),
}


def measure(bench: Bench, only: str, repeats: int) -> None:
    kafka = bench.kafka
    sizes = {"100": 100, "1k": 1024}
    wanted: list[tuple[str, Callable[[int], None]]] = []
    for size, count in sizes.items():
        if f"throughput-{size}".startswith(only):
            print(f"filling a topic with {bench.records:,} records of {count} B", file=sys.stderr)
            _fill(kafka, f"bench-{size}", _LANES, bench.records, count)
            wanted.append((f"throughput-{size}", lambda _, size=size: bench.throughput(f"bench-{size}", size)))  # type: ignore[misc]
    if "slow-lane".startswith(only):
        _fill(kafka, "bench-lanes", _MANY_LANES, _MANY_LANES * _PER_LANE, 100)
        wanted.append(("slow-lane", lambda _: bench.slow_lane("bench-lanes")))
    if "latency".startswith(only):
        wanted.append(("latency", bench.latency))
    for number in range(repeats):
        for name, one in wanted:
            print(f"{name}: {number + 1} of {repeats}", file=sys.stderr)
            one(number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--only", default="", help="throughput, throughput-100, throughput-1k, slow-lane or latency")
    parser.add_argument("--repeats", type=int, default=3, help="turns that each is measured (default 3)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each size (default a million)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offramp-bench-kafka-") as folder:
        kafka = KafkaServer.create(Path(folder), jvm=_JVM)
        kafka.start()
        bench = Bench(kafka, arguments.records)
        try:
            measure(bench, arguments.only, arguments.repeats)
        finally:
            kafka.discard()
    rows = [
        Row(name, unit, statistics.median(bench.values[name]), tuple(bench.values[name]), goal)
        for name, (unit, goal) in _ROWS.items()
        if name in bench.values
    ]
    print(table(rows))
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Records that come again because lanes of Kafka move: another sidecar joins and leaves, or is frozen."""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import command, running
from benchmarks.rows import Benchmark, Row
from benchmarks.sidecar import TIMEOUT, Sidecar

_LANES = 8
_RECORDS = {"join": 60_000, "frozen": 200_000}
_BATCH = 50
#: batches at once for each sidecar, and seconds for each
_WORKERS, _WORK = 4, 0.05
#: times that something is done to another sidecar, and seconds for which it stays, or stays frozen once it is out
_TIMES, _STAYS = 3, 1.0
_PROTOCOLS = ("consumer", "classic")


def _row(way: str, protocol: str) -> str:
    return f"kafka-rebalance-{way}-{protocol}"


class Group:
    """Sidecars of one group, each with a worker."""

    def __init__(self, environment: BenchmarkEnvironment, protocol: str, records: int) -> None:
        self._records = environment.records(records)
        topic = environment.kafka_topic(lanes=_LANES, records=self._records, size=100)
        properties = {"heartbeat.interval.ms": "500", "session.timeout.ms": "6000"} if protocol == "classic" else {}
        servers = [environment.kafka.bootstrap]
        self._broker = {"type": "kafka", "servers": servers, "group_protocol": protocol, "properties": properties}
        group = f"bench-{time.time_ns()}"
        self._subscription = {"broker": "kafka", "topics": [topic], "group": group, "batch": {"records": _BATCH}}
        self._topic, self._name = topic, group
        self._kafka = environment.kafka
        self._handled = 0

    @contextmanager
    def member(self) -> Iterator[Sidecar]:
        """The worker drains first, as in a pod that ends."""
        with Sidecar({"kafka": self._broker}, self._subscription) as sidecar:
            with running(*command("handled", sidecar.address, _WORKERS, _WORK)) as worker:
                assert worker.stdout is not None
                worker.stdout.readline()
                yield sidecar
                worker.terminate()
                told, _ = worker.communicate(timeout=TIMEOUT)
            self._handled += json.loads(told)["records"]

    def wait_until_done(self) -> None:
        """Until everything is committed."""
        ends = time.monotonic() + TIMEOUT
        while time.monotonic() < ends:
            committed = self._kafka.committed(self._name, self._topic, range(_LANES)).values()
            if sum(position for position, _ in committed) == self._records:
                return
            time.sleep(0.05)
        raise TimeoutError("not everything was handled")

    @property
    def again(self) -> int:
        """Records that were handled another time, by members that have left."""
        return self._handled - self._records


def _until(sidecar: Sidecar, count: int) -> None:
    """Until it has so many lanes."""
    ends = time.monotonic() + TIMEOUT
    while len(lanes := [lane for lane in sidecar.status().lanes if not lane.parked]) != count:
        if time.monotonic() > ends:
            raise TimeoutError(f"the lanes were not shared out: {lanes}")
        time.sleep(0.05)


def _join(group: Group, environment: BenchmarkEnvironment) -> None:
    with group.member() as stays:
        _until(stays, _LANES)
        for _ in range(environment.times(_TIMES)):
            with group.member() as comes:
                _until(comes, _LANES // 2)
                time.sleep(environment.seconds(_STAYS))
            _until(stays, _LANES)
        group.wait_until_done()


def _freeze(group: Group, environment: BenchmarkEnvironment) -> None:
    with group.member() as stays, group.member() as freezes:
        for _ in range(environment.times(_TIMES)):
            _until(freezes, _LANES // 2)
            freezes.signal(signal.SIGSTOP)
            _until(stays, _LANES)
            time.sleep(environment.seconds(_STAYS))
            freezes.signal(signal.SIGCONT)
            # It may not have heard yet that it has lost its lanes, but the other has given half of them back by then.
            _until(stays, _LANES // 2)
        group.wait_until_done()


_WAYS = {"join": _join, "frozen": _freeze}


def measure(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for way, rebalance in _WAYS.items():
        for protocol in _PROTOCOLS:
            group = Group(environment, protocol, _RECORDS[way])
            rebalance(group, environment)
            found[_row(way, protocol)] = group.again / environment.times(_TIMES)
    return found


BENCHMARKS = (
    Benchmark(
        "kafka-rebalance",
        f"{_LANES} lanes of Kafka, {_WORKERS} batches of {_BATCH} at once for {_WORK * 1000:g} ms each; {_TIMES} times "
        "another sidecar joins and leaves, or is frozen until the group has put it out",
        tuple(Row(_row(way, protocol), "records handled again, each time") for way in _WAYS for protocol in _PROTOCOLS),
        measure,
        seconds=120.0,
        preparation=4.0,
        once=True,
        by_name_only=True,
    ),
)

"""Offramp on a real Pulsar against a direct consumer: `python -m benchmarks.pulsar [--records N] [--repeats N]`.

Both consume the same topic in turn, each under a subscription of its own, with a process for the consumer. The direct
one receives in batches, the fastest that pulsar-client offers, and acks each message. The Pulsar is started for
this (`python -m tests.servers pulsar`), unless `--url` and `--admin-url` say where one is.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import _pulsar
import pulsar

from benchmarks.rows import Goal, Row, table
from benchmarks.running import Sidecar

LANES = 4
SIZE = 100
BATCH = 500

_CONFIG = """
listen: {{{{socket: "{{folder}}/offramp.sock"}}}}
http: {{{{address: ""}}}}
log: {{{{level: warning}}}}
brokers:
  pulsar: {{{{url: "{url}", admin_url: "{admin_url}", subscription_type: {kind}, receiver_queue: 1000}}}}
subscriptions:
  bench: {{{{broker: pulsar, topics: ["{topic}"], group: "{group}", batch: {{{{records: {{batch}}}}}}}}}}
"""

_DIRECT = """
import json, resource, sys, time
import _pulsar, pulsar
url, topic, group, kind, records = sys.argv[1:]
client = pulsar.Client(url, logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"))
consumer = client.subscribe(
    topic, group, getattr(pulsar.ConsumerType, kind), receiver_queue_size=1000,
    initial_position=pulsar.InitialPosition.Earliest,
    batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(500, 10 << 20, 10),
)
consumer.acknowledge(consumer.receive())
began = time.perf_counter()
left = int(records) - 1
while left:
    for message in consumer.batch_receive():
        message.data()
        consumer.acknowledge(message)
        left -= 1
seconds = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": seconds, "cpu": used.ru_utime + used.ru_stime}))
client.close()
"""

#: by the word of the configuration: what pulsar-client calls it
KINDS = {"shared": "Shared", "key_shared": "KeyShared", "failover": "Failover"}


class Bench:
    def __init__(self, url: str, admin_url: str, records: int) -> None:
        self.url = url
        self.admin_url = admin_url
        self.records = records
        self.topic = f"bench-{os.urandom(3).hex()}"

    def fill(self) -> None:
        """One topic, written in batches with keys, as busy producers do."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v2/persistent/public/default/{self.topic}/partitions",
            method="PUT",
            data=str(LANES).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30):
            pass
        client = pulsar.Client(self.url, logger=pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null"))
        producer = client.create_producer(
            self.topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        room = threading.Semaphore(5_000)
        for number in range(self.records):
            room.acquire()
            producer.send_async(b"x" * SIZE, lambda result, id_: room.release(), partition_key=f"key-{number % 1000}")
        producer.flush()
        client.close()

    def direct(self, kind: str) -> dict[str, Any]:
        arguments = [self.url, self.topic, _group("direct"), KINDS[kind], str(self.records)]
        done = subprocess.run(
            [sys.executable, "-c", _DIRECT, *arguments], check=True, capture_output=True, text=True, timeout=600
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def offramp(self, kind: str) -> dict[str, Any]:
        config = _CONFIG.format(
            url=self.url, admin_url=self.admin_url, kind=kind, topic=self.topic, group=_group("offramp")
        )
        with Sidecar(BATCH, config) as sidecar:
            answer = sidecar.consume(self.records, workers=4, work=0.0)
            return {**answer, "cpu": sidecar.cpu_seconds}


def _group(kind: str) -> str:
    return f"{kind}-{os.urandom(3).hex()}"


@contextlib.contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Where the Pulsar listens that was started for this."""
    process = subprocess.Popen([sys.executable, "-m", "tests.servers", "pulsar"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        found = re.search(r"at (pulsar://\S+), admin API at (http://[^\s;]+)", said)
        assert found, f"Pulsar did not start: {said}"
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measure(bench: Bench, repeats: int) -> list[Row]:
    bench.fill()
    rows: list[Row] = []
    for kind in KINDS:
        figures: dict[str, list[float]] = {"ratio": [], "rate": [], "direct-rate": [], "cpu": [], "direct-cpu": []}
        for number in range(repeats):
            print(f"pulsar-{kind}: {number + 1} of {repeats}", file=sys.stderr)
            direct, through = bench.direct(kind), bench.offramp(kind)
            rates = [bench.records / one["seconds"] for one in (through, direct)]
            figures["rate"].append(rates[0])
            figures["direct-rate"].append(rates[1])
            figures["ratio"].append(rates[0] / rates[1])
            figures["cpu"].append(through["cpu"] / bench.records * 1e6)
            figures["direct-cpu"].append(direct["cpu"] / bench.records * 1e6)
        units = {"ratio": "of a direct consumer", "cpu": "CPU s per million", "direct-cpu": "CPU s per million"}
        for name, values in figures.items():
            goal = Goal(0.4, at_least=True) if name == "ratio" else None
            median = sorted(values)[len(values) // 2]
            rows.append(Row(f"pulsar-{kind}-{name}", units.get(name, "records/s"), median, tuple(values), goal))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--url", default="")
    parser.add_argument("--admin-url", default="")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        at = (arguments.url, arguments.admin_url) if arguments.url else stack.enter_context(server())
        rows = measure(Bench(at[0], at[1], arguments.records), arguments.repeats)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

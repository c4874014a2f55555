"""The embedded broker: end to end through a sidecar, and alone."""

import asyncio
import time
from collections.abc import Mapping

from benchmarks.environment import BenchmarkEnvironment
from benchmarks.programs import consume, consume_rows, percentile
from benchmarks.rows import Benchmark, Row, at_least
from sidecar.brokers.base import SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.model.records import Message

_RECORDS = 500_000
_PUBLISHED = 200_000
_ONES, _PUBLISHERS = 12_800, 64
_ROUNDS = 300
_MESSAGES = [Message(b"key-%d" % number, bytes(100)) for number in range(1_000)]


def throughput(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    records = environment.records(_RECORDS)
    topic = environment.local_topic(lanes=4, records=records, size=100)
    with environment.on_local(topic) as sidecar:
        return consume("local-throughput", sidecar, "--records", records)


def alone(environment: BenchmarkEnvironment) -> Mapping[str, float]:
    return asyncio.run(_alone(environment))


async def _alone(environment: BenchmarkEnvironment) -> dict[str, float]:
    broker = LocalBroker(LocalOptions(directory=str(environment.folder / f"alone-{time.time_ns()}")))
    await broker.open()
    try:
        thousands = environment.records(_PUBLISHED) // 1_000 + 1
        began = time.perf_counter()
        for _ in range(thousands):
            await broker.publish("thousands", _MESSAGES)
        found = {"local-publish-1000": thousands * 1_000 / (time.perf_counter() - began)}
        ones = environment.records(_ONES) // _PUBLISHERS + 1
        began = time.perf_counter()
        await asyncio.gather(*(_publish_ones(broker, ones) for _ in range(_PUBLISHERS)))
        found["local-publish-1"] = ones * _PUBLISHERS / (time.perf_counter() - began)
        times = await _latency(broker, environment.records(_ROUNDS))
        return {**found, "local-latency-p50": percentile(times, 0.5), "local-latency-p99": percentile(times, 0.99)}
    finally:
        await broker.close()


async def _publish_ones(broker: LocalBroker, count: int) -> None:
    for _ in range(count):
        await broker.publish("ones", _MESSAGES[:1])


async def _latency(broker: LocalBroker, rounds: int) -> list[float]:
    """Milliseconds from `publish` until a waiting poll returns the record, which is on disk by then."""
    source = broker.subscribe(SourceSpec("latency", ("latency",)))
    await source.open()
    await source.poll(1, 1_000, 1.0)
    times = []
    for _ in range(rounds):
        poll = asyncio.create_task(source.poll(1, 1_000, 1.0))
        await asyncio.sleep(0)
        began = time.perf_counter()
        await broker.publish("latency", _MESSAGES[:1])
        await poll
        times.append((time.perf_counter() - began) * 1e3)
    await source.close()
    return times


BENCHMARKS = (
    Benchmark(
        "local-throughput",
        f"{_RECORDS:,} records of 100 B on the embedded broker, batches of 500, 4 workers",
        consume_rows("local-throughput", goal=at_least(40_000)),
        throughput,
        seconds=5.0,
        preparation=3.0,
    ),
    Benchmark(
        "local-alone",
        "the embedded broker without a sidecar; a publish returns when it is on disk",
        (
            Row("local-publish-1000", "records/s, 1,000 at a time"),
            Row("local-publish-1", f"records/s, one at a time, {_PUBLISHERS} publishers"),
            Row("local-latency-p50", "ms from publish to poll"),
            Row("local-latency-p99", "ms from publish to poll"),
        ),
        alone,
        seconds=5.0,
    ),
)

"""The embedded broker alone, without the sidecar around it: `python -m benchmarks.local_broker [--directory D]`."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.local import LocalBroker, LocalOptions
from sidecar.brokers.local.source import LocalSource
from sidecar.model import Commit, Lane, Message, Run

_RECORDS = 300_000
_MESSAGES = [Message(b"key-%d" % number, bytes(100)) for number in range(1000)]


@contextmanager
def _measured(what: str, count: int, unit: str = "records") -> Iterator[None]:
    began, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{what:58} {count / seconds:12,.0f} {unit}/s {cpu / count * 1e6:10.2f} CPU s per million")


async def _publish(broker: LocalBroker, topic: str, records: int, batch: int, publishers: int = 1) -> None:
    async def one() -> None:
        for _ in range(records // batch // publishers):
            await broker.publish(topic, _MESSAGES[:batch])

    await asyncio.gather(*(one() for _ in range(publishers)))


async def _consume(broker: LocalBroker, topic: str, group: str, records: int) -> LocalSource:
    source = broker.subscribe(SourceSpec(group, (topic,)))
    await source.open()
    got = 0
    while got < records:
        polled = await source.poll(2000, 1 << 20, 1.0)
        got += sum(len(chunk.frames) for chunk in polled.chunks)
    return source


async def _under_load(body: Callable[[], Awaitable[object]]) -> None:
    """While the event loop has other work all the time, as that of a busy sidecar has."""

    async def burn() -> None:
        while True:
            sum(range(20_000))
            await asyncio.sleep(0)

    burning = asyncio.create_task(burn())
    await body()
    burning.cancel()


async def _latency(broker: LocalBroker, rounds: int) -> list[float]:
    source = broker.subscribe(SourceSpec("latency", ("latency",)))
    await source.open()
    await source.poll(1, 1000, 1.0)
    times = []
    for _ in range(rounds):
        poll = asyncio.create_task(source.poll(1, 1000, 1.0))
        await asyncio.sleep(0)
        began = time.perf_counter()
        await broker.publish("latency", _MESSAGES[:1])
        await poll
        times.append(time.perf_counter() - began)
    await source.close()
    return sorted(times)


async def _run(directory: str) -> None:
    broker = LocalBroker(LocalOptions(directory=directory))
    await broker.open()
    with _measured("publish, 1000 at a time", _RECORDS):
        await _publish(broker, "thousands", _RECORDS, 1000)
    with _measured("publish, 1000 at a time, 8 publishers", _RECORDS):
        await _publish(broker, "crowd", _RECORDS, 1000, publishers=8)
    with _measured("publish, one at a time", 2000):
        await _publish(broker, "ones", 2000, 1)
    with _measured("publish, one at a time, 64 publishers", 32_000):
        await _publish(broker, "ones", 32_000, 1, publishers=64)
    with _measured("poll a backlog", _RECORDS):
        source = await _consume(broker, "thousands", "one", _RECORDS)
    with _measured("poll a backlog that was published one at a time", 34_000):
        await (await _consume(broker, "ones", "one", 34_000)).close()
    with _measured("poll a backlog, while the event loop is busy", _RECORDS):
        await _under_load(lambda: _consume(broker, "thousands", "two", _RECORDS))
    lanes = {Lane("thousands", number): Commit(1000, (Run(1002, 1005),)) for number in range(4)}
    with _measured("commit, 4 lanes at a time", 2000, "commits"):
        for _ in range(2000):
            await source.commit(lanes)
    times = await _latency(broker, 500)
    print(f"{'from publish to poll, p50 and p99':58} {times[250] * 1e3:.2f} ms, {times[494] * 1e3:.2f} ms")
    await broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_broker", description=__doc__)
    parser.add_argument("--directory", help="where to write; default: a temporary directory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        asyncio.run(_run(directory))


if __name__ == "__main__":
    main()

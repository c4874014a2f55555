"""Consuming processes for `benchmarks.kafka`: `python -m benchmarks.kafka_consumers MODE ARGUMENTS`. Print JSON.

direct SERVERS TOPIC RECORDS         a tuned confluent-kafka consumer, in batches of 500, committing as it goes
direct-latency SERVERS TOPIC RECORDS how long records of that many are under way, for a direct consumer
latency ADDRESS RECORDS              the same through a sidecar
lanes ADDRESS RECORDS SLOW           records of lanes but 0, where a batch of lane 0 takes so many seconds
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message

from offramp import Batch, aio

_BATCH = 500
#: seconds between commits, as the sidecar has it
_COMMIT_EVERY = 0.1
_PATIENCE = 60.0


def _consumer(servers: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"direct-{time.time_ns()}",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Tuned: with its defaults it waits more than it works.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _next(consumer: Consumer) -> list[Message]:
    first = consumer.poll(_PATIENCE)
    if first is None:
        raise TimeoutError("nothing comes")
    return [first, *consumer.consume(_BATCH - 1, 0)]


def direct(servers: str, topic: str, records: int) -> dict[str, Any]:
    consumer = _consumer(servers, topic)
    got = 0
    began = committed = 0.0
    while got < records:
        messages = _next(consumer)
        now = time.perf_counter()
        began = began or now
        for message in messages:
            got += len(message.value() or b"") > 0
        if now - committed > _COMMIT_EVERY:
            committed = now
            consumer.commit(asynchronous=True)
    ended = time.perf_counter()
    consumer.close()
    return {"seconds": ended - began, "records": got, "cpu": time.process_time()}


def direct_latency(servers: str, topic: str, records: int) -> dict[str, Any]:
    consumer = _consumer(servers, topic)
    times: list[float] = []
    while len(times) < records:
        messages = _next(consumer)
        now = time.monotonic_ns()
        times += [(now - int(message.value() or b"0")) / 1e9 for message in messages]
    consumer.close()
    return _shares(times)


async def latency(address: str, records: int) -> dict[str, Any]:
    times: list[float] = []

    async def handle(batch: Batch) -> None:
        now = time.monotonic_ns()
        times.extend((now - int(record.value or b"0")) / 1e9 for record in batch)
        if len(times) >= records:
            worker.drain()

    worker = aio.Worker("bench", handle, workers=4, address=address)
    await worker.run()
    return _shares(times)


async def lanes(address: str, records: int, slow: float) -> dict[str, Any]:
    got = 0
    began = ended = 0.0

    async def handle(batch: Batch) -> None:
        nonlocal got, began, ended
        began = began or time.perf_counter()
        if batch.message.records[0].lane == 0:
            if not ended:
                await asyncio.sleep(slow)
            return
        got += len(batch)
        if got >= records and not ended:
            ended = time.perf_counter()
            worker.drain()

    worker = aio.Worker("bench", handle, workers=32, address=address)
    await worker.run()
    return {"seconds": ended - began, "records": got}


def _shares(times: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(times)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100]}


def main(mode: str, *words: str) -> None:
    if mode == "direct":
        said = direct(words[0], words[1], int(words[2]))
    elif mode == "direct-latency":
        said = direct_latency(words[0], words[1], int(words[2]))
    elif mode == "latency":
        said = asyncio.run(latency(words[0], int(words[1])))
    else:
        said = asyncio.run(lanes(words[0], int(words[1]), float(words[2])))
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The latency of records, from the time in their values to the handler.

`python -m benchmarks.programs.latency direct SERVERS TOPIC RECORDS`, or `sidecar ADDRESS RECORDS`. The first
tenth of the records is not counted, since the consumer may just have joined. Prints `ready` when it listens.
"""

import asyncio
import sys
import time

from benchmarks.programs import percentile, print_result
from benchmarks.programs.direct_kafka import join, next_records
from offramp import Batch, aio


def direct(servers: str, topic: str, records: int) -> list[float]:
    consumer = join(servers, topic)
    while not consumer.assignment():
        consumer.poll(0.1)
    print("ready", flush=True)
    times: list[float] = []
    while len(times) < records:
        messages = next_records(consumer)
        now = time.monotonic_ns()
        times += [(now - int(message.value() or b"0")) / 1e6 for message in messages]
    consumer.close()
    return times


async def through_sidecar(address: str, records: int) -> list[float]:
    times: list[float] = []

    async def handle(batch: Batch) -> None:
        now = time.monotonic_ns()
        times.extend((now - int(record.value or b"0")) / 1e6 for record in batch)
        if len(times) >= records:
            worker.drain()

    worker = aio.Worker("bench", handle, workers=4, address=address)
    # The sidecar fetches records before a worker connects; the first ones are not counted anyway.
    print("ready", flush=True)
    await worker.run()
    return times


def main(how: str, *words: str) -> None:
    if how == "direct":
        times = direct(words[0], words[1], int(words[2]))
    else:
        times = asyncio.run(through_sidecar(words[0], int(words[1])))
    counted = times[len(times) // 10 :]
    print_result(p50=percentile(counted, 0.5), p99=percentile(counted, 0.99), p999=percentile(counted, 0.999))


if __name__ == "__main__":
    main(*sys.argv[1:])

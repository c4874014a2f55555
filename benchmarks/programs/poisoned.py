"""A worker that takes one record at a time and nacks those that begin with `bad`.
`python -m benchmarks.programs.poisoned ADDRESS RECORDS WORKERS WORK`.

Ends after this many good records, whose values are the times at which they were published. Prints their rate and
latency.
"""

import asyncio
import sys
import time

from benchmarks.programs import percentile, print_result
from offramp import Batch, aio

BAD = b"bad"


async def main(address: str, records: int, workers: int, work: float) -> None:
    times: list[float] = []
    began = time.monotonic()

    async def handle(batch: Batch) -> None:
        (record,) = batch
        await asyncio.sleep(work)
        value = record.value or b""
        if value.startswith(BAD):
            batch.nack("bad")
            return
        times.append((time.monotonic_ns() - int(value)) / 1e6)
        if len(times) == records:
            worker.drain()

    worker = aio.Worker("bench", handle, workers=workers, address=address)
    print("ready", flush=True)
    await worker.run()
    print_result(rate=len(times) / (time.monotonic() - began), p99=percentile(times[len(times) // 10 :], 0.99))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))

"""Counts batches of all lanes but lane 0: `python -m benchmarks.programs.lanes ADDRESS WORKERS WORK SLOW SECONDS`.

A batch takes `WORK` seconds, one of lane 0 takes `SLOW`."""

import asyncio
import sys
import time

from benchmarks.programs import print_result
from offramp import Batch, aio

#: seconds from the first batch until all lanes are busy
_WARM_UP = 0.5


async def consume(address: str, workers: int, work: float, slow: float, seconds: float) -> tuple[int, float]:
    got = 0
    first = began = ended = 0.0

    async def handle(batch: Batch) -> None:
        nonlocal got, first, began, ended
        now = time.perf_counter()
        first = first or now
        if not began and now - first >= _WARM_UP:
            began, got = now, 0
        if batch.message.records[0].lane == 0:
            await asyncio.sleep(slow)
            return
        await asyncio.sleep(work)
        if not ended:
            got += len(batch)
            if began and time.perf_counter() - began >= seconds:
                ended = time.perf_counter()
                worker.drain()

    worker = aio.Worker("bench", handle, workers=workers, prefetch=0, address=address, drain_timeout=0.1)
    await worker.run()
    return got, ended - began


def main(address: str, workers: str, work: str, slow: str, seconds: str) -> None:
    cpu = time.process_time()
    got, took = asyncio.run(consume(address, int(workers), float(work), float(slow), float(seconds)))
    print_result(records=got, seconds=took, cpu=time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])

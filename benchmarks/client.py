"""A consuming process: `python -m benchmarks.client ADDRESS RECORDS WORKERS SECONDS_OF_WORK`. Prints JSON."""

import asyncio
import json
import sys
import time

from offramp import Batch, aio


async def consume(address: str, records: int, workers: int, work: float) -> None:
    got = batches = 0
    began = ended = 0.0

    async def handle(batch: Batch) -> None:
        nonlocal got, batches, began, ended
        if not batches:
            began = time.perf_counter()
        batches += 1
        if work:
            await asyncio.sleep(work)
        for record in batch:
            got += len(record.value or b"") > 0
        if got >= records:
            ended = time.perf_counter()
            worker.drain()

    worker = aio.Worker("bench", handle, workers=workers, address=address)
    await worker.run()
    seconds = ended - began
    print(json.dumps({"seconds": seconds, "records": got, "batches": batches, "cpu": time.process_time()}))


if __name__ == "__main__":
    address, records, workers, work = sys.argv[1:]
    asyncio.run(consume(address, int(records), int(workers), float(work)))

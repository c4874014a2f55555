"""A consuming process: `python -m benchmarks.programs.client threads|tasks SUBSCRIPTION RECORDS`.

Prints one line of JSON, as the programs of the other languages do: records, seconds and CPU seconds of this process,
from the first batch to the result of the last settlement.
"""

import asyncio
import json
import sys
import time

from offramp import Batch, SettleResult, Worker, aio


class Count:
    """Counts the records that were processed and settled."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._got = self._settled = 0
        self._began = self._cpu = self._ended = self._cpu_ended = 0.0
        self.worker: Worker | aio.Worker | None = None

    def handle(self, batch: Batch) -> None:
        if not self._got:
            self._began, self._cpu = time.perf_counter(), time.process_time()
        self._got += sum(len(record.value or b"") > 0 for record in batch)

    async def handle_in_a_task(self, batch: Batch) -> None:
        self.handle(batch)

    def on_result(self, batch: Batch, result: SettleResult) -> None:
        self._settled += len(batch) if result.settled else 0
        if self._settled >= self._records and not self._ended:
            self._ended, self._cpu_ended = time.perf_counter(), time.process_time()
            assert self.worker is not None
            self.worker.drain()

    def report(self) -> str:
        seconds, cpu = self._ended - self._began, self._cpu_ended - self._cpu
        return json.dumps({"records": self._settled, "seconds": seconds, "cpu_seconds": cpu})


def main(kind: str, subscription: str, records: int) -> None:
    count = Count(records)
    if kind == "threads":
        threads = Worker(subscription, count.handle, on_result=count.on_result)
        count.worker = threads
        threads.run()
    else:
        tasks = aio.Worker(subscription, count.handle_in_a_task, on_result=count.on_result)
        count.worker = tasks
        asyncio.run(tasks.run())
    print(count.report())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

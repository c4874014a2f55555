"""Consumes with the Python client for a number of records, or of seconds from the first batch.

Prints the records, the time, and its own processor time, which shows whether it was the bottleneck.
"""

import argparse
import asyncio
import time

from benchmarks.programs import print_result
from offramp import Batch, aio


class Count:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._records: int = arguments.records
        self._seconds: float = arguments.seconds
        self._work: float = arguments.work
        self._work_a_record: float = arguments.work_a_record
        self._got = self._batches = 0
        self._began = self._cpu_began = self._ended = self._cpu_ended = 0.0
        self._done = False
        self.worker = aio.Worker("bench", self.handle, workers=arguments.workers, address=arguments.address)

    async def handle(self, batch: Batch) -> None:
        if not self._began:
            self._began, self._cpu_began = time.perf_counter(), time.process_time()
        if work := self._work + self._work_a_record * len(batch):
            await asyncio.sleep(work)
        got = sum(len(record.value or b"") > 0 for record in batch)
        if self._done:
            return
        self._got += got
        self._batches += 1
        now = time.perf_counter()
        if self._got >= self._records or now - self._began >= self._seconds:
            self._done = True
            self._ended, self._cpu_ended = now, time.process_time()
            self.worker.drain()

    def report(self) -> None:
        seconds = self._ended - self._began
        cpu = self._cpu_ended - self._cpu_began
        print_result(records=self._got, batches=self._batches, seconds=seconds, cpu=cpu, busy=cpu / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs.worker", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--records", type=int, default=1 << 60)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--work", type=float, default=0.0, help="seconds per batch")
    parser.add_argument("--work-a-record", type=float, default=0.0, help="additional seconds per record")
    count = Count(parser.parse_args())
    asyncio.run(count.worker.run())
    count.report()


if __name__ == "__main__":
    main()

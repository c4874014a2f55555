"""Consumes until SIGTERM, and prints how many records were handled, those that came again included. Prints an empty
result first, when it can be told to stop.
`python -m benchmarks.programs.handled ADDRESS WORKERS SECONDS-PER-BATCH`."""

import asyncio
import signal
import sys

from benchmarks.programs import print_result
from offramp import Batch, aio


class Handled:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.records = 0

    async def handle(self, batch: Batch) -> None:
        await asyncio.sleep(self._seconds)
        self.records += len(batch)


async def main(address: str, workers: int, seconds: float) -> None:
    handled = Handled(seconds)
    worker = aio.Worker("bench", handled.handle, workers=workers, address=address, signals=False)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
    print_result()
    await worker.run()
    print_result(records=handled.records)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

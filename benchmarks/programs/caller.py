"""A worker whose handler calls the downstream service once for each batch, until SIGTERM.
`python -m benchmarks.programs.caller ADDRESS SOCKET WORKERS`."""

import asyncio
import sys

from benchmarks.programs import print_result
from offramp import Batch, aio


class Caller:
    """Connections to `benchmarks.programs.downstream`, one per concurrent call."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def handle(self, batch: Batch) -> None:
        reader, writer = self._free.pop() if self._free else await asyncio.open_unix_connection(self._path)
        writer.write(b"work\n")
        await reader.readline()
        self._free.append((reader, writer))


async def main(address: str, path: str, workers: int) -> None:
    caller = Caller(path)
    await aio.Worker("bench", caller.handle, workers=workers, prefetch=0, address=address, drain_timeout=0.1).run()
    print_result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

"""What is behind a handler, and fragile: it slows down when it is pushed.
`python -m benchmarks.programs.downstream SOCKET`.

A request takes 5 ms as long as no more than 16 are there. Beyond that it takes longer by the cube of what is too
much, as a database does that runs out of memory or locks: with 64 at once it serves a sixteenth of what it serves with
16, which is less than what comes.
A line of input stalls it, the next one lets it go on; then it counts anew. A request is a line, and so is its answer.
"""

import asyncio
import sys

from benchmarks.programs import say

#: requests at once that it serves well, and the seconds that each takes then
CAPACITY, SERVICE = 16, 0.005


class Downstream:
    def __init__(self) -> None:
        self._going = asyncio.Event()
        self._going.set()
        self._here = 0
        self._served = self._too_many = self._most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _line(reader):
            if request == b"count\n":
                writer.write(f"{self._served} {self._most} {self._too_many}\n".encode())
                continue
            self._here += 1
            self._most = max(self._most, self._here)
            self._too_many += self._here > CAPACITY
            await self._going.wait()
            await asyncio.sleep(SERVICE * max(1.0, self._here / CAPACITY) ** 3)
            self._here -= 1
            self._served += 1
            writer.write(b"ok\n")
        writer.close()

    def stall(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._most, self._too_many = self._here, 0
        self._going.set()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Nothing at the end. Callers are killed when the play is over."""
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


async def main(path: str) -> None:
    downstream = Downstream()
    server = await asyncio.start_unix_server(downstream.serve, path)
    said = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    print("ready", flush=True)
    stalled = False
    async with server:
        while await said.readline():
            (downstream.go_on if stalled else downstream.stall)()
            stalled = not stalled
    say()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

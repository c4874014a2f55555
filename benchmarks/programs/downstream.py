"""A service behind a handler that slows down when it is overloaded. `python -m benchmarks.programs.downstream SOCKET`.

A request takes 5 ms with up to 16 concurrent requests. Beyond that, the time grows with the cube of the excess, as in
a database that runs out of memory or locks: with 64 concurrent requests it serves a sixteenth of the rate with 16,
which is less than what arrives.
A line of input stalls it, the next one resumes it and resets its counts. A request is a line, and so is its response.
"""

import asyncio
import sys

from benchmarks.programs import print_result

#: concurrent requests that it serves well, and the seconds that each then takes
CAPACITY, SERVICE = 16, 0.005


class Downstream:
    def __init__(self) -> None:
        self._running = asyncio.Event()
        self._running.set()
        self._concurrent = 0
        self._served = self._too_many = self._most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _line(reader):
            if request == b"count\n":
                writer.write(f"{self._served} {self._most} {self._too_many}\n".encode())
                continue
            self._concurrent += 1
            self._most = max(self._most, self._concurrent)
            self._too_many += self._concurrent > CAPACITY
            await self._running.wait()
            await asyncio.sleep(SERVICE * max(1.0, self._concurrent / CAPACITY) ** 3)
            self._concurrent -= 1
            self._served += 1
            writer.write(b"ok\n")
        writer.close()

    def stall(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._most, self._too_many = self._concurrent, 0
        self._running.set()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Empty at the end of input, and when a caller was killed."""
    try:
        return await reader.readline()
    except ConnectionError:
        return b""


async def main(path: str) -> None:
    downstream = Downstream()
    server = await asyncio.start_unix_server(downstream.serve, path)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    stalled = False
    async with server:
        while await commands.readline():
            (downstream.resume if stalled else downstream.stall)()
            stalled = not stalled
    print_result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

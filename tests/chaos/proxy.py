"""Stands in a connection, to cut and delay it: `python -m tests.chaos.proxy LISTEN UPSTREAM`, both host:port.

It says `ready` when it listens. Then it is told on its standard input, one word a line:

    flow         everything comes through, at once: how it begins
    cut          reset every connection there is, once
    delay 0.2    every piece is so many seconds late
    hold         nothing comes through, and nobody is told; new connections are taken all the same
"""

import asyncio
import contextlib
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter

_PIECE = 1 << 16
#: closing the socket resets the connection, and drops what is not sent yet
_NO_GOODBYE = struct.pack("ii", 1, 0)


class Proxy:
    def __init__(self, upstream: str) -> None:
        self._host, _, self._port = upstream.rpartition(":")
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay = 0.0
        self._open: set[StreamWriter] = set()

    def tell(self, line: str) -> None:
        match line.split():
            case ["flow"]:
                self._delay = 0.0
                self._flowing.set()
            case ["cut"]:
                for writer in [*self._open]:
                    self._reset(writer)
            case ["delay", seconds]:
                self._delay = float(seconds)
                self._flowing.set()
            case ["hold"]:
                self._flowing.clear()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, back = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            self._reset(writer)
            return
        self._open.add(back)
        with contextlib.suppress(OSError):
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back))
                both.create_task(self._pump(there, writer))
        self._reset(writer)
        self._reset(back)

    async def _pump(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
        # The end of one side ends the other.
        writer.close()

    def _reset(self, writer: StreamWriter) -> None:
        self._open.discard(writer)
        connection: socket.socket = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_GOODBYE)
        writer.transport.abort()


async def main(listen: str, upstream: str) -> None:
    proxy = Proxy(upstream)
    host, _, port = listen.rpartition(":")
    await asyncio.start_server(proxy.serve, host, int(port))
    told = StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    print("ready", flush=True)
    while line := await told.readline():
        proxy.tell(line.decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""An app that begins calls and resets them at once, as fast as it can: `python -m tests.security.resetter SOCKET`.

It prints a line for every thousand calls.
"""

import socket
import sys

from offramp.v1 import consumer_pb2
from tests.security.bare import BareClient

METHODS = ("/offramp.v1.ConsumerService/Fetch", "/grpc.health.v1.Health/Watch")
#: calls of one connection, whose streams have numbers of 31 bits
CALLS = 1_000_000


def main(path: str) -> None:
    request = consumer_pb2.FetchRequest(subscription="idle", wait_ms=60_000).SerializeToString()
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        with BareClient(connection) as client:
            for number in range(1, CALLS):
                client.reset(client.call(METHODS[number % len(METHODS)], request, whole=number % 2 == 0))
                if number % 100 == 0:
                    client.listen()
                if number % 1_000 == 0:
                    print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Servers by hand: see `tests.servers`."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.servers import kafka, pulsar
from tests.servers.kafka import KafkaServer
from tests.servers.pulsar import PulsarServer
from tests.servers.tools import Missing, in_ci, tool


def install() -> int:
    """Fetch what the servers need, so that no test waits for it."""
    try:
        for program in ("java", "openssl"):
            tool(program)
        kafka.JARS.fetch()
        pulsar.JARS.fetch()
    except Missing as missing:
        if in_ci():
            print(f"{missing}; CI=true, so the tests would fail", file=sys.stderr)
            return 1
        print(f"{missing}. Tests that need it will be skipped.", file=sys.stderr)
    return 0


def run(kind: str) -> int:
    """Until Ctrl-C."""
    server_class: type[KafkaServer] | type[PulsarServer] = KafkaServer if kind == "kafka" else PulsarServer
    with tempfile.TemporaryDirectory(prefix=f"offramp-{kind}-") as folder:
        server = server_class.create(Path(folder))
        server.start()
        print(f"{server.describe()}; CA {server.ca}; log {server.log}")
        print("Ctrl-C stops it and removes its data.", flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            server.discard()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("what", choices=["install", "kafka", "pulsar"])
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return install() if arguments.what == "install" else run(arguments.what)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""Servers by hand: see `tests.servers`."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.servers import kafka, nats, pulsar, redis
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pulsar import PulsarServer
from tests.servers.redis import RedisServer
from tests.servers.tools import Missing, in_ci, tool

_SERVERS: dict[str, type[KafkaServer] | type[PulsarServer] | type[NatsServer] | type[RedisServer]] = {
    "kafka": KafkaServer,
    "pulsar": PulsarServer,
    "nats": NatsServer,
    "redis": RedisServer,
}


def install() -> int:
    """Fetch what the servers need, so that no test waits for it."""
    missing: list[Missing] = []
    for fetch in (_java_servers, nats.install, redis.install):
        try:
            fetch()
        except Missing as one:
            missing.append(one)
    for what in missing:
        print(f"{what}. Tests that need it {'would fail: CI=true' if in_ci() else 'will be skipped'}.", file=sys.stderr)
    return 1 if missing and in_ci() else 0


def _java_servers() -> None:
    for program in ("java", "openssl"):
        tool(program)
    kafka.JARS.fetch()
    pulsar.JARS.fetch()


def run(kind: str) -> int:
    """Until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix=f"offramp-{kind}-") as folder:
        server = _SERVERS[kind].create(Path(folder))
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
    parser.add_argument("what", choices=["install", *_SERVERS])
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return install() if arguments.what == "install" else run(arguments.what)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

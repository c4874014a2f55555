"""Servers by hand: see `tests.servers`."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.servers import kafka, pulsar
from tests.servers.kafka import ADMIN, KafkaServer
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


def run_kafka() -> int:
    """Until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="offramp-kafka-") as folder:
        server = KafkaServer.create(Path(folder))
        server.start()
        at = server.addresses
        print(f"Kafka {kafka.VERSION} at {at.plain}; SASL (PLAIN, SCRAM-SHA-256; {ADMIN.name} / {ADMIN.password})")
        print(f"at {at.sasl}, TLS at {at.ssl}, both at {at.sasl_ssl}; CA {server.ca}; log {server.log}")
        print("Ctrl-C stops it and removes its data.", flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            server.discard()
    return 0


def run_pulsar() -> int:
    """Until Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="offramp-pulsar-") as folder:
        server = PulsarServer.create(Path(folder))
        server.start()
        print(f"Pulsar {pulsar.VERSION} at {server.url}, admin API at {server.admin_url}; with TLS at {server.url_tls}")
        print(f"and {server.admin_url_tls}; CA {server.ca}; log {server.log}")
        print("Ctrl-C stops it and removes its data.", flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            server.discard()
    return 0


def main() -> int:
    commands = {"install": install, "kafka": run_kafka, "pulsar": run_pulsar}
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("what", choices=commands)
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return commands[arguments.what]()
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

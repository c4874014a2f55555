"""
Show the versions of Offramp, its protocol, Python and the libraries, and the event loop that a sidecar here runs on.

  offramp version
  offramp version --json
"""

import argparse
import platform
import sqlite3
from importlib import metadata

from sidecar.cli.json_lines import to_json
from sidecar.model.text import columns
from sidecar.model.version import PROTOCOL, PROTOCOL_MINOR, VERSION
from sidecar.server import event_loop

#: libraries of brokers are shown only where they are installed
_LIBRARIES, _BROKER_LIBRARIES = ("grpcio", "protobuf", "PyYAML"), ("confluent-kafka", "pulsar-client")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    found = versions()
    print(to_json(found) if args.json else "\n".join(columns(list(found.items()))))
    return 0


def versions() -> dict[str, str]:
    found = {
        "offramp": VERSION,
        "protocol": f"{PROTOCOL}, minor {PROTOCOL_MINOR}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "event loop": event_loop.NAME,
    }
    for name in _LIBRARIES + _BROKER_LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in _LIBRARIES:
                found[name] = "not installed"
    return found

"""One server for a whole test run, however many workers it has.

The first worker that asks starts it; the process that began the run stops it at the end. Tests share it by names of
their own for topics and groups.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.pulsar import PulsarServer
from tests.servers.redis import RedisServer
from tests.servers.server import Server

Shared = TypeVar("Shared", KafkaServer, PulsarServer, NatsServer, RedisServer)

#: where the servers of this run are, for the workers; with the process that began the run
_FOLDER, _OWNER = "OFFRAMP_TEST_SERVERS", "OFFRAMP_TEST_SERVERS_OWNER"
_TOLD = "server.json"


def begin() -> None:
    """In the process that begins the run, before its workers start. Nothing is started yet."""
    os.environ[_FOLDER] = tempfile.mkdtemp(prefix="offramp-servers-")
    os.environ[_OWNER] = str(os.getpid())


def end() -> None:
    """In the same process, when its workers are done."""
    folder = Path(os.environ.pop(_FOLDER))
    del os.environ[_OWNER]
    kinds: dict[str, type[Server]] = {
        "kafka": KafkaServer,
        "pulsar": PulsarServer,
        "nats": NatsServer,
        "redis": RedisServer,
    }
    for kind, server_class in kinds.items():
        if (told := folder / kind / _TOLD).exists():
            server_class.from_json(told.read_text()).discard()
    shutil.rmtree(folder, ignore_errors=True)


def kafka() -> KafkaServer:
    """The Kafka of this run. Raises `Missing`."""
    return _shared("kafka", KafkaServer)


def pulsar() -> PulsarServer:
    """The Pulsar of this run. Raises `Missing`."""
    return _shared("pulsar", PulsarServer)


def nats() -> NatsServer:
    """The NATS of this run. Raises `Missing`."""
    return _shared("nats", NatsServer)


def redis() -> RedisServer:
    """The Redis of this run. Raises `Missing`."""
    return _shared("redis", RedisServer)


def _shared(kind: str, server_class: type[Shared]) -> Shared:
    folder = Path(os.environ[_FOLDER]) / kind
    folder.mkdir(exist_ok=True)
    told = folder / _TOLD
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            server = server_class.create(folder / "server", owner=int(os.environ[_OWNER]))
            server.start()
            told.write_text(server.to_json())
    return server_class.from_json(told.read_text())

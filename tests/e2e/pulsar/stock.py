"""What Pulsar has, read by a plain client. Nothing here is the sidecar's code: it is what the sidecar is checked by."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.error import HTTPError

import _pulsar
import pulsar

from tests.e2e.load.journal import Spot
from tests.servers.pulsar import PulsarServer

_PATIENCE_MS = 20_000
_RANGE = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")

QUIET = pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null")


class Stored(NamedTuple):
    key: bytes | None
    value: bytes


@dataclass
class Stock:
    """One topic, and the group that consumes it."""

    records: dict[Spot, Stored] = field(default_factory=dict)
    #: what the group would not get again if a sidecar started now
    committed: set[Spot] = field(default_factory=set)
    #: reasons by origin
    dead: dict[Spot, str] = field(default_factory=dict)
    #: origins of what was ever put into the retry topic
    parked: set[Spot] = field(default_factory=set)


def spot_of(lane: int, id_: Any) -> Spot:
    """As a worker notes it."""
    return Spot(lane, (id_.ledger_id() << 80) + (id_.entry_id() << 40) + max(0, id_.batch_index()))


@contextmanager
def client_of(server: PulsarServer) -> Iterator[pulsar.Client]:
    """A plain client, closed in the end."""
    client = pulsar.Client(server.url, logger=QUIET)
    try:
        yield client
    finally:
        client.close()


def take_stock(server: PulsarServer, group: str, topic: str, lanes: int) -> Stock:
    with client_of(server) as client:
        stock = Stock()
        # First what is committed, then where that may have gone, then where it came from: all of it moves on meanwhile.
        acked = [_acked(server, group, f"{topic}-partition-{lane}") for lane in range(lanes)]
        letters = {
            m.data(): m.properties()["offramp-reason"] for m in _every_lane(client, server, f"{group}.offramp.dead")
        }
        retries = {message.data() for message in _every_lane(client, server, f"{group}.offramp.retry")}
        spots: dict[bytes, Spot] = {}
        for lane in range(lanes):
            for message in _all(client, f"{topic}-partition-{lane}"):
                id_ = message.message_id()
                spot = spot_of(lane, id_)
                stock.records[spot] = Stored(message.partition_key().encode() or None, message.data())
                spots[message.data()] = spot
                if acked[lane].covers(id_.ledger_id(), id_.entry_id()):
                    stock.committed.add(spot)
        stock.dead = {spots[value]: reason for value, reason in letters.items()}
        stock.parked = {spots[value] for value in retries}
        return stock


class _Acked(NamedTuple):
    """Entries that a group has acked whole."""

    upto: tuple[int, int]
    ranges: list[tuple[tuple[int, int], tuple[int, int]]]

    def covers(self, ledger: int, entry: int) -> bool:
        place = (ledger, entry)
        return place <= self.upto or any(low < place <= high for low, high in self.ranges)


def _acked(server: PulsarServer, group: str, name: str) -> _Acked:
    cursor = server.admin("GET", f"persistent/public/default/{name}/internalStats")["cursors"].get(group)
    if cursor is None:
        return _Acked((-1, -1), [])
    ledger, entry = cursor["markDeletePosition"].split(":")
    found = _RANGE.findall(cursor["individuallyDeletedMessages"])
    ranges = [((int(a), int(b)), (int(c), int(d))) for a, b, c, d in found]
    return _Acked((int(ledger), int(entry)), ranges)


def _every_lane(client: pulsar.Client, server: PulsarServer, topic: str) -> Iterator[pulsar.Message]:
    try:
        lanes = server.admin("GET", f"persistent/public/default/{topic}/partitions")["partitions"]
    except HTTPError:
        return
    for name in [f"{topic}-partition-{lane}" for lane in range(lanes)] or [topic]:
        yield from _all(client, name)


def _all(client: pulsar.Client, name: str) -> Iterator[pulsar.Message]:
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    try:
        while reader.has_message_available():
            yield reader.read_next(_PATIENCE_MS)
    finally:
        reader.close()

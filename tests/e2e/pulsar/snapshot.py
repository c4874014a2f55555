"""What Pulsar has, read by a plain client. Shares no code with the sidecar, which is checked by it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.error import HTTPError

import _pulsar
import pulsar

from tests.e2e.load import origins
from tests.e2e.load.audit import BrokerSnapshot, Stored
from tests.e2e.load.journal import Spot
from tests.servers.pulsar import PulsarServer

_READ_TIMEOUT_MS = 20_000
_RANGE = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")

QUIET = pulsar.FileLogger(_pulsar.LoggerLevel.Error, "/dev/null")


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


def take_snapshot(server: PulsarServer, group: str, topic: str, lanes: int) -> BrokerSnapshot:
    with client_of(server) as client:
        snapshot = BrokerSnapshot()
        # First what is committed, then where that may have gone, then where it came from: all of it moves on meanwhile.
        acked = [cursor_of(server, group, f"{topic}-partition-{lane}") for lane in range(lanes)]
        for message in _every_lane(client, server, f"{group}.offramp.dead"):
            told = message.properties()
            snapshot.dead[origins.of_letter(told)] = told["offramp-reason"]
        for message in _every_lane(client, server, f"{group}.offramp.retry"):
            snapshot.parked.add(origins.of_parked(message.properties()))
        for lane in range(lanes):
            for message in all_of(client, f"{topic}-partition-{lane}"):
                spot = spot_of(lane, message.message_id())
                snapshot.records[spot] = Stored(message.partition_key().encode() or None, message.data())
                if acked[lane].covers(spot.position):
                    snapshot.committed.add(spot)
        return snapshot


class Cursor(NamedTuple):
    """Entries that a group has acked whole: up to one, and ranges beyond it, each after its first to its last."""

    upto: tuple[int, int]
    ranges: list[tuple[tuple[int, int], tuple[int, int]]]

    def runs(self) -> tuple[tuple[int, int], ...]:
        """As places: see `spot_of`."""
        return ((0, _after(*self.upto)), *((_after(*low), _after(*high)) for low, high in self.ranges))

    def covers(self, place: int) -> bool:
        return any(start <= place < stop for start, stop in self.runs())


def _after(ledger: int, entry: int) -> int:
    """The first place behind an entry."""
    return (ledger << 80) + (entry + 1 << 40)


def cursor_of(server: PulsarServer, group: str, name: str) -> Cursor:
    """Of one partition."""
    cursor = server.admin("GET", f"persistent/public/default/{name}/internalStats")["cursors"].get(group)
    if cursor is None:
        return Cursor((-1, -1), [])
    ledger, entry = cursor["markDeletePosition"].split(":")
    found = _RANGE.findall(cursor["individuallyDeletedMessages"])
    ranges = [((int(a), int(b)), (int(c), int(d))) for a, b, c, d in found]
    return Cursor((int(ledger), int(entry)), ranges)


def _every_lane(client: pulsar.Client, server: PulsarServer, topic: str) -> Iterator[pulsar.Message]:
    for _, name in lanes_of(server, topic):
        yield from all_of(client, name)


def lanes_of(server: PulsarServer, topic: str) -> list[tuple[int, str]]:
    """The partitions of a topic, if there is one, by number and name."""
    try:
        lanes = server.admin("GET", f"persistent/public/default/{topic}/partitions")["partitions"]
    except HTTPError:
        return []
    return [(lane, f"{topic}-partition-{lane}") for lane in range(lanes)] or [(0, topic)]


def all_of(client: pulsar.Client, name: str) -> Iterator[pulsar.Message]:
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    try:
        while reader.has_message_available():
            yield reader.read_next(_READ_TIMEOUT_MS)
    finally:
        reader.close()

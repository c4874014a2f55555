"""What Redis has, read by a plain client. Nothing here is the sidecar's code: it is what the sidecar is checked by."""

from collections.abc import Iterator, Mapping

from redis import Redis

from tests.e2e.load import origins
from tests.e2e.load.audit import BrokerSnapshot, Stored
from tests.e2e.load.journal import Spot, place_of_ref
from tests.servers.redis import RedisServer, names_of

_MANY = 10_000


def take_snapshot(server: RedisServer, group: str, topic: str, lanes: int) -> BrokerSnapshot:
    with server.client() as client:
        snapshot = BrokerSnapshot()
        # First what is committed, then where that may have gone, then where it came from: all of it moves on meanwhile.
        settled = [Settled(client, name, group) for name in names_of(topic, lanes)]
        for headers in every_lane(client, f"{group}.offramp.dead"):
            snapshot.dead[origins.of_letter(headers)] = headers["offramp-reason"]
        # A copy is there until it is settled, and its worker has noted that by then.
        for headers in every_lane(client, f"{group}.offramp.retry"):
            snapshot.parked.add(origins.of_parked(headers))
        for lane, name in enumerate(names_of(topic, lanes)):
            for id_, fields in client.xrange(name):
                spot = Spot(lane, place_of_ref(id_.decode()))
                snapshot.records[spot] = Stored(fields.get(b"key"), fields[b"value"])
                if spot.position in settled[lane]:
                    snapshot.committed.add(spot)
        return snapshot


class Settled:
    """The places of one stream that a group has read and acked."""

    def __init__(self, client: Redis, name: str, group: str) -> None:
        told = next((one for one in client.xinfo_groups(name) if one["name"].decode() == group), None)
        self._last = place_of_ref(told["last-delivered-id"].decode()) if told else -1
        rows = client.xpending_range(name, group, "-", "+", _MANY) if told else []
        self._pending = {place_of_ref(row["message_id"].decode()) for row in rows}

    def __contains__(self, place: int) -> bool:
        return place <= self._last and place not in self._pending


def every_lane(client: Redis, topic: str, lanes: int = 8) -> Iterator[Mapping[str, str]]:
    """The headers of all entries."""
    for name in names_of(topic, lanes):
        for _, fields in client.xrange(name):
            yield {field.decode(): value.decode(errors="replace") for field, value in fields.items()}


def left(server: RedisServer, topic: str, group: str, lanes: int) -> int:
    """What a group has not settled."""
    found = 0
    with server.client() as client:
        for name in names_of(topic, lanes):
            if client.exists(name):
                groups = [one for one in client.xinfo_groups(name) if one["name"].decode() == group]
                found += sum(one["pending"] + (one["lag"] or 0) for one in groups)
    return found

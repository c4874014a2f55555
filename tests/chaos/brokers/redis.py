"""A Redis. What was parked is deleted once it is settled, so a reader of its own notes all that comes into the retry
topic while a round is played."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.brokers.base import Broker, RoundTopic, name_of
from tests.chaos.brokers.side_topics import dead_letter_of, parked_record_of
from tests.chaos.checker.history import RETRY, TOPIC, BrokerSnapshot, Commit, ParkedRecord, Stored
from tests.chaos.plan import SESSION, Plan
from tests.chaos.proxy_process import ProxyProcess
from tests.e2e.load.journal import Spot, place_of_ref
from tests.e2e.redis.snapshot import left
from tests.servers.process import free_ports
from tests.servers.redis import RedisServer, names_of

_RETRY_LANES = 8
_MANY = 100_000


class RedisBroker(Broker):
    server: RedisServer
    proxy: ProxyProcess

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = RedisServer.create(folder / "redis")
        self.proxy = ProxyProcess(f"127.0.0.1:{self.server.port}", f"127.0.0.1:{free_ports(1)[0]}")
        self.server.start()

    def new_topic(self, plan: Plan, folder: Path) -> RoundTopic:
        name = name_of(plan)
        self.server.make_topic(name, plan.lanes)
        return RedisTopic(self, name, plan)


class RedisTopic(RoundTopic):
    def __init__(self, broker: RedisBroker, name: str, plan: Plan) -> None:
        super().__init__(name)
        self._server = broker.server
        self._proxy = broker.proxy
        self._names = names_of(name, plan.lanes)
        self._retry = names_of(f"{self.group}.offramp.retry", _RETRY_LANES)
        self._parked: dict[Spot, ParkedRecord] = {}
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._note_what_is_parked)
        self._reader.start()

    def broker_settings(self, who: str) -> Mapping[str, Any]:
        settings = {"url": f"redis://{self._proxy.address}", "claim_idle": f"{SESSION}s", "timeout": "3s"}
        return {"type": "redis", "consumer": who, **settings}

    def publisher_address(self, socket: str) -> str:
        return self._proxy.address

    def commits(self) -> list[Commit]:
        try:
            with self._server.client() as client:
                found = [
                    (kind, lane, tuple(self._runs(client, name)))
                    for kind, names in ((TOPIC, self._names), (RETRY, self._retry))
                    for lane, name in enumerate(names)
                    if client.exists(name)
                ]
            # They were there by now, at the latest.
            now = time.monotonic()
            return [Commit(now, *one) for one in found]
        except RedisError as error:
            raise OSError(str(error)) from error

    def is_done(self) -> bool:
        try:
            return not any(left(self._server, name, self.group, 1) for name in (*self._names, *self._retry))
        except (RedisError, OSError):
            return False

    def snapshot(self) -> BrokerSnapshot:
        snapshot = BrokerSnapshot(commits=self.commits())
        with self._server.client() as client:
            for lane, name in enumerate(self._names):
                for id_, fields in client.xrange(name):
                    stored = Stored(_text(fields.get(b"key")), fields[b"value"].decode())
                    snapshot.records[Spot(lane, place_of_ref(id_.decode()))] = stored
            for name in names_of(f"{self.group}.offramp.dead", _RETRY_LANES):
                for _, fields in client.xrange(name):
                    value = fields[b"value"].decode()
                    snapshot.dead_letters.append(dead_letter_of(_text(fields.get(b"key")), value, _headers(fields)))
        snapshot.parked = [*self._parked.values()]
        return snapshot

    def close(self, keep: Path | None) -> None:
        self._closed.set()
        self._reader.join()

    def _runs(self, client: Redis, name: str) -> Iterator[tuple[int, int]]:
        """Places that the group has read and acked."""
        groups = [one for one in client.xinfo_groups(name) if one["name"].decode() == self.group]
        start = 0
        for group in groups:
            # What is read meanwhile lies beyond the last that was read before.
            stop = place_of_ref(group["last-delivered-id"].decode()) + 1
            rows: Any = client.xpending_range(name, self.group, "-", group["last-delivered-id"], _MANY)
            for row in rows:
                place = place_of_ref(row["message_id"].decode())
                if start < place or not start:
                    yield start, place
                start = place + 1
            if start < stop:
                yield start, stop

    def _note_what_is_parked(self) -> None:
        """Nothing comes and goes unseen: who waits for an entry gets it as it is added."""
        after: dict[bytes | str | memoryview, Any] = dict.fromkeys(self._retry, "0")
        with self._server.client() as client:
            while not self._closed.is_set():
                with contextlib.suppress(RedisError, OSError):
                    answer: Any = client.xread(after, block=200)
                    for name, entries in answer or ():
                        lane = self._retry.index(name.decode())
                        for id_, fields in entries:
                            spot = Spot(lane, place_of_ref(id_.decode()))
                            self._parked[spot] = parked_record_of(spot, _headers(fields))
                            after[name.decode()] = id_


def _text(value: bytes | None) -> str | None:
    return value.decode() if value is not None else None


def _headers(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode(errors="replace") for name, value in fields.items()}

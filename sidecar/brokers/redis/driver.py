"""The driver of streams: what they are called, publishing, depth, and who receives."""

import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sidecar.brokers.queue.broker import QueueBroker
from sidecar.brokers.queue.driver import Depth, Driver, Received
from sidecar.brokers.queue.naming import count_lanes, queue_name
from sidecar.brokers.redis import entries, scripts
from sidecar.brokers.redis.connection import GroupExists, Server
from sidecar.brokers.redis.options import RedisOptions
from sidecar.brokers.redis.receiver import RedisReceiver
from sidecar.model.clock import Clock
from sidecar.model.errors import NotFound, Refused, TooLarge
from sidecar.model.records import Lane, Message, Start
from sidecar.observability.logs import Log

log = Log("redis")

#: seconds of silence after which a consumer that holds nothing is deleted
_FORGET_AFTER = 86_400.0
#: entries of one piece when a stream is browsed, at most
_BROWSED = 100
#: what the server itself takes
_LARGEST = 512 << 20
#: the group with which a stream is made; deleted at once
_MAKER = "offramp.making"


class RedisBroker(QueueBroker[bytes]):
    def __init__(self, options: RedisOptions, clock: Clock | None = None) -> None:
        super().__init__(options.traits, RedisDriver(options), clock)


class RedisDriver(Driver[bytes]):
    numbered = True

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._server = Server(options)
        self._mapping = entries.Mapping(options.value_field.encode(), options.key_field.encode())
        self._consumer = options.consumer or socket.gethostname()
        self.facts = {"address": options.address, "consumer": self._consumer}
        #: the trouble that the server removes streams by itself; empty: it does not. None: nobody has looked yet
        self._eviction: str | None = None
        #: groups that were there in this life, with their streams
        self._known: set[tuple[str, str]] = set()

    async def open(self) -> None:
        """Nothing: what is wrong is told to those who ask for something."""

    async def _look_at_server(self) -> None:
        server = _facts_of(await self._may("INFO", "server"))
        persistence = _facts_of(await self._may("INFO", "persistence"))
        if "valkey_version" in server:
            self.facts["server"] = f"Valkey {server['valkey_version']}"
        elif server:
            self.facts["server"] = f"Redis {server['redis_version']}"
        self.facts["durability"] = durability = _durability(persistence)
        if persistence.get("aof_enabled") == "0":
            log.warning("the server may lose what it confirmed", address=self._options.address, reason=durability)
        policy = await self._may("CONFIG", "GET", "maxmemory-policy")
        named = policy[1].decode() if policy else ""
        self._eviction = ""
        if named.startswith("allkeys"):
            self._eviction = (
                f"the server evicts whole streams when its memory is full: maxmemory-policy is {named}. Set it to "
                "noeviction"
            )

    async def _may(self, *command: str) -> Any:
        """The answer to what only some users may ask; None for the others."""
        try:
            return await self._server.call(f"use {self._options.address}", *command)
        except Refused:
            # If it is for the credentials, this says so.
            await self._server.call(f"use {self._options.address}", "PING")
            return None

    # Streams

    async def lanes(self, topic: str) -> int:
        async def exists(lane: Lane) -> bool:
            return bool(await self._server.call(f"find {topic}", "EXISTS", _name(lane)))

        return await count_lanes(topic, exists)

    async def ensure(self, topic: str, lanes: int) -> None:
        if await self._server.call(f"find {topic}", "EXISTS", topic):
            return
        names = [_name(Lane(topic, number)) for number in range(lanes)]
        if not self._options.create_streams:
            them = " ".join(names)
            raise Refused(
                f"There is no stream {topic!r}, and create_streams is false. Create {them} yourself, each with "
                f"XGROUP CREATE {topic} {_MAKER} $ MKSTREAM and XGROUP DESTROY {topic} {_MAKER}"
            )
        # The last one first: a topic exists once its lane 0 does, so it is never found with fewer.
        for name in reversed(names):
            with contextlib.suppress(GroupExists):
                await self._server.call(f"create {name}", "XGROUP", "CREATE", name, _MAKER, "$", "MKSTREAM")
            await self._server.call(f"create {name}", "XGROUP", "DESTROY", name, _MAKER)

    async def receiver(self, lane: Lane, group: str, start: Start) -> RedisReceiver:
        if self._eviction is None:
            await self._look_at_server()
        name = _name(lane)
        lost = (name, group) in self._known
        receiver = RedisReceiver(self._server, name, group, self._options, self._consumer)
        # A server that lost a group may have got entries since, which nobody has seen.
        begin = "0" if lost or start is Start.EARLIEST else "$"
        create = ["XGROUP", "CREATE", name, group, begin]
        if lost and self._options.create_streams:
            create.append("MKSTREAM")
        try:
            await self._server.call(f"create group {group} of {name}", *create)
            receiver.first, receiver.delivers_again = not lost, lost
            if lost:
                log.warning("the server has lost a group; all that it has is delivered again", lane=lane, group=group)
        except GroupExists:
            await receiver.forget_silent_consumers(_FORGET_AFTER)
        self._known.add((name, group))
        receiver.troubles["eviction"] = self._eviction or ""
        if (ttl := await self._server.call(f"look at {name}", "TTL", name)) >= 0:
            receiver.troubles["expiry"] = (
                f"the server deletes {name} in {ttl} s, whatever is in it: PERSIST {name} stops that"
            )
        return receiver

    # Messages

    async def publish(self, lane: Lane, messages: Sequence[Message]) -> Sequence[int]:
        name = _name(lane)
        for message in messages:
            # What goes to a side topic was accepted before, without its new headers.
            most = _LARGEST if message.aside else self._options.max_message
            if (size := entries.size_of(message)) > most:
                raise TooLarge(f"Redis: a message for {name} has {size} bytes; max_message is {most}")
        commands = [("XADD", name, "NOMKSTREAM", "*", *self._mapping.fields(message)) for message in messages]
        ids = await self._server.pipeline(f"publish to {name}", commands)
        if None in ids:
            raise NotFound(f"There is no stream {name!r}.")
        return [entries.number_of(id_) for id_ in ids]

    async def depth(self, lane: Lane, group: str) -> Depth:
        name = _name(lane)
        waiting, held, age_ms = await self._server.run(f"look at {name}", scripts.DEPTH, name, group, "")
        return Depth(waiting, held, age_ms / 1000 if age_ms >= 0 else -1.0)

    async def browse(self, lane: Lane, group: str, size: int) -> AsyncIterator[Sequence[Received[bytes]]]:
        name = _name(lane)
        if not (last := await self._server.call(f"read {name}", "XREVRANGE", name, "+", "-", "COUNT", 1)):
            return
        after, count = b"-", 1
        while found := await self._server.call(f"read {name}", "XRANGE", name, after, last[0][0], "COUNT", count):
            yield self._mapping.received(found, again=False)
            read = sum(len(part) for _, fields in found for part in fields)
            # So many that they would fit if they were like these.
            count = max(1, min(_BROWSED, 2 * count, size * len(found) // max(1, read)))
            after = b"(" + found[-1][0]

    async def close(self) -> None:
        await self._server.close()


def _name(lane: Lane) -> str:
    return queue_name(lane, ":")


def _facts_of(info: bytes | None) -> Mapping[str, str]:
    """What INFO says; nothing if the user may not ask."""
    lines = (info or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _durability(persistence: Mapping[str, str]) -> str:
    if not persistence:
        return "not known: the user may not ask (INFO)"
    if persistence.get("aof_enabled") == "0":
        return "no append-only file: what was written since the last snapshot is lost when the server ends"
    return "append-only file"

"""What NATS has, read by a plain client. Nothing here is the sidecar's code: it is what the sidecar is checked by."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from tests.e2e.load import origins
from tests.e2e.load.audit import BrokerSnapshot, Stored
from tests.e2e.load.journal import Spot, place_of_ref
from tests.servers.nats import NatsServer

RETRY_LANES = 8


def take_snapshot(server: NatsServer, group: str, topic: str, lanes: int) -> BrokerSnapshot:
    async def body(stream: JetStreamContext) -> BrokerSnapshot:
        snapshot = BrokerSnapshot()
        # First what is committed, then where that may have gone, then where it came from: all of it moves on meanwhile.
        floors = [await _floor(stream, topic, group, lane) for lane in range(lanes)]
        for message in await _messages(stream, f"{group}.offramp.dead"):
            snapshot.dead[origins.of_letter(message.headers)] = message.headers["offramp-reason"]
        # A copy is there until it is settled, and its worker has noted that by then.
        for message in await _messages(stream, f"{group}.offramp.retry"):
            snapshot.parked.add(origins.of_parked(message.headers))
        for message in await _messages(stream, topic):
            lane = _lane_of(topic, message)
            spot = Spot(lane, message.place)
            key = message.headers.get("offramp-key")
            snapshot.records[spot] = Stored(key.encode() if key is not None else None, message.value)
            if message.sequence <= floors[lane]:
                snapshot.committed.add(spot)
        return snapshot

    return server.ask(body)


def left(server: NatsServer, group: str, topics: Mapping[str, int]) -> int:
    """What a group has not settled of topics, given with their lanes."""

    async def body(stream: JetStreamContext) -> int:
        found = 0
        for topic, lanes in topics.items():
            for lane in range(lanes):
                try:
                    told = await stream.consumer_info(topic.replace(".", "_"), _consumer(group, lane))
                except NotFoundError:
                    continue
                found += (told.num_pending or 0) + (told.num_ack_pending or 0)
        return found

    return server.ask(body)


@dataclass(frozen=True)
class Message:
    """As the server has it."""

    sequence: int
    subject: str
    #: as a number that grows as places do: that of the sidecar's `ref`
    place: int
    value: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Message":
        lines = base64.b64decode(told.get("hdrs", "")).decode(errors="replace").split("\r\n")[1:]
        headers = {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
        value = base64.b64decode(told.get("data", ""))
        ref = f"{told['seq']}-{_nanoseconds(told['time'])}"
        return cls(told["seq"], told["subject"], place_of_ref(ref), value, headers)


async def get(stream: JetStreamContext, name: str, sequence: int) -> Message | None:
    """The message at a sequence, or the next one; None at the end. The library's own call rounds the time."""
    wanted = json.dumps({"seq": sequence, "next_by_subj": ">"}).encode()
    answer = await stream._nc.request(f"$JS.API.STREAM.MSG.GET.{name}", wanted, timeout=30.0)
    told = json.loads(answer.data)
    return Message.of(told["message"]) if "message" in told else None


def _nanoseconds(time: str) -> int:
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(f"{seconds}+00:00").timestamp()) * 1_000_000_000 + int(f"{fraction:0<9}")


async def _floor(stream: JetStreamContext, topic: str, group: str, lane: int) -> int:
    """The last sequence of the stream up to which a lane is acked without a gap."""
    try:
        told = await stream.consumer_info(topic, _consumer(group, lane))
    except NotFoundError:
        return 0
    return told.ack_floor.stream_seq if told.ack_floor is not None else 0


async def _messages(stream: JetStreamContext, topic: str) -> list[Message]:
    found: list[Message] = []
    while (message := await get(stream, topic.replace(".", "_"), found[-1].sequence + 1 if found else 1)) is not None:
        found.append(message)
    return found


def _lane_of(topic: str, message: Message) -> int:
    return int(message.subject.removeprefix(topic).removeprefix(".") or 0)


def _consumer(group: str, lane: int) -> str:
    name = group.replace(".", "_")
    return f"{name}_{lane}" if lane else name

"""The driver of JetStream: streams, consumers, publishing, depth, and who receives."""

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.brokers.nats import messages, naming
from sidecar.brokers.nats.connection import Connection, Link, NoResponders, Request, read_answer
from sidecar.brokers.nats.limits import nanoseconds, refuse_unusable
from sidecar.brokers.nats.options import NatsOptions
from sidecar.brokers.nats.receiver import NatsReceiver
from sidecar.brokers.queue.broker import QueueBroker
from sidecar.brokers.queue.driver import Depth, Driver, Received
from sidecar.model.clock import Clock
from sidecar.model.errors import NotFound, Refused, TooLarge, Unavailable
from sidecar.model.records import Lane, Message, Start
from sidecar.observability.logs import Log

log = Log("nats")

_NANOSECONDS = 1_000_000_000


class NatsBroker(QueueBroker[str]):
    def __init__(self, options: NatsOptions, clock: Clock | None = None) -> None:
        super().__init__(options.traits, NatsDriver(options), clock)


@dataclass(slots=True)
class _Known:
    """A consumer that was there in this life."""

    #: when the server made its stream
    stream_made: str
    #: all below this sequence of the stream is settled
    reached: int


class NatsDriver(Driver[str]):
    numbered = True

    def __init__(self, options: NatsOptions) -> None:
        self.facts = {"address": options.address}
        self._options = options
        self._connection = Connection(options)
        self._known: dict[tuple[str, str], _Known] = {}
        #: by topic: what its stream takes
        self._subjects: dict[str, Sequence[str]] = {}

    async def open(self) -> None:
        link = await self._connection.link()
        self.facts = {"address": self._options.address, **link.facts}
        doing = f"use JetStream at {self._options.address}"
        try:
            await link.api(doing, "INFO")
        except NoResponders as error:
            raise Unavailable(f"NATS: cannot {doing}: it is not enabled for this account, or not up yet") from error
        except Refused as error:
            if "no right" not in str(error):
                raise

    # Streams

    async def lanes(self, topic: str) -> int:
        return naming.lanes_in(topic, _subjects_in(await self._stream(topic)))

    async def _stream(self, topic: str) -> dict[str, Any]:
        """What the server says of the stream of a topic. Raises `NotFound`."""
        link = await self._connection.link()
        name = self._name(topic)
        found = await link.api(f"find stream {name}", f"STREAM.INFO.{name}")
        if name != topic and topic not in _subjects_in(found):
            raise Refused(f"NATS: stream {name} does not take subject {topic}: it is not the stream of this topic")
        self._subjects[topic] = _subjects_in(found)
        return found

    @staticmethod
    def _name(topic: str) -> str:
        if not naming.is_allowed(topic):
            raise Refused(f"NATS: {topic!r} cannot be the name of a stream")
        return naming.stream_of(topic)

    async def ensure(self, topic: str, lanes: int) -> None:
        try:
            await self._stream(topic)
            return
        except NotFound:
            pass
        name, subjects = self._name(topic), naming.subjects_of(topic, lanes)
        if not self._options.create_streams:
            raise Refused(
                f"There is no stream {name}, and create_streams is false. Create it: nats stream add {name} "
                f"--subjects={','.join(subjects)} --storage=file --defaults"
            )
        link = await self._connection.link()
        config = {
            "name": name,
            "subjects": subjects,
            "storage": "file",
            "retention": "limits",
            "num_replicas": self._options.replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_consumers": -1,
            "allow_direct": True,
        }
        await link.api(f"create stream {name}", f"STREAM.CREATE.{name}", config)

    async def receiver(self, lane: Lane, group: str, start: Start) -> NatsReceiver:
        link = await self._connection.link()
        stream = await self._stream(lane.topic)
        name, consumer = self._name(lane.topic), naming.consumer_of(group, lane)
        subject = _filter(stream, lane)
        owner = f"{group}/{lane.number}"
        doing = f"read {name} for consumer {consumer}"
        known = self._known.get((name, consumer))
        try:
            info, first = await link.api(doing, f"CONSUMER.INFO.{name}.{consumer}"), False
        except NotFound:
            if known is not None:
                log.warning("the server has lost a consumer; it is created again", lane=lane, group=group)
            begin = self._begin(stream, known, start)
            info, first = await self._create(link, name, consumer, owner, subject, begin), known is None
        refuse_unusable(info["config"], consumer, owner, subject)
        mine = _Known(stream["created"], info["ack_floor"]["stream_seq"] + 1)
        self._known[name, consumer] = mine

        def reached(sequence: int) -> None:
            mine.reached = max(mine.reached, sequence)

        receiver = NatsReceiver(self._connection, name, consumer, subject, naming.subject_of(lane), info, reached)
        receiver.first = first
        return receiver

    async def _create(
        self, link: Link, stream: str, consumer: str, owner: str, subject: str, begin: Mapping[str, Any]
    ) -> dict[str, Any]:
        config = {
            "durable_name": consumer,
            "ack_policy": "explicit",
            "ack_wait": int(self._options.ack_wait * _NANOSECONDS),
            "max_deliver": -1,
            # What is parked in a retry topic must not stop the rest.
            "max_ack_pending": -1,
            "replay_policy": "instant",
            "metadata": {"offramp": owner},
            **begin,
            **({"filter_subject": subject} if subject else {}),
        }
        doing = f"create consumer {consumer} of stream {stream}"
        try:
            # An older form, without the filter in its subject: rights for it are simpler to give.
            return await link.api(
                doing, f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config}
            )
        except Refused as error:
            # Another sidecar may have made it meanwhile, to begin at another sequence.
            try:
                return await link.api(doing, f"CONSUMER.INFO.{stream}.{consumer}")
            except NotFound:
                raise error from None

    def _begin(self, stream: Mapping[str, Any], known: _Known | None, start: Start) -> Mapping[str, Any]:
        """Where a new consumer starts."""
        if known is not None:
            # Nobody has seen what came since it was lost.
            same = known.stream_made == stream["created"]
            return _from(known.reached) if same else {"deliver_policy": "all"}
        if sequence := self._options.start_sequence:
            return _from(sequence)
        if self._options.start_at:
            return {"deliver_policy": "by_start_time", "opt_start_time": self._options.start_at}
        return {"deliver_policy": "all" if start is Start.EARLIEST else "new"}

    # Messages

    async def publish(self, lane: Lane, messages_: Sequence[Message]) -> Sequence[int]:
        link = await self._connection.link()
        name = self._name(lane.topic)
        doing = f"publish to {name}"
        if lane.topic not in self._subjects:
            await self._stream(lane.topic)
        subjects = self._subjects[lane.topic]
        requests = [self._request(link, lane, name, subjects, message) for message in messages_]
        try:
            answers = await link.ask(doing, requests)
        except NoResponders as error:
            # Asked anew, this is the answer if the stream is gone.
            await self._stream(lane.topic)
            raise Unavailable(f"NATS: cannot {doing}: nobody took a message for {requests[0].subject}") from error
        return [read_answer(answer, doing)["seq"] for answer in answers]

    def _request(self, link: Link, lane: Lane, stream: str, subjects: Sequence[str], message: Message) -> Request:
        subject, named = _subject_for(lane, stream, subjects, message)
        payload = message.value or b""
        headers = messages.headers_of(message, stream, skip_subject=named)
        size = messages.size_of(headers, payload)
        # The server would close the connection.
        if size > link.max_payload:
            raise TooLarge(f"NATS: a message for {stream} has {size} bytes; the server takes {link.max_payload}")
        return Request(subject, payload, headers)

    async def depth(self, lane: Lane, group: str) -> Depth:
        link = await self._connection.link()
        name = self._name(lane.topic)
        doing = f"look at {name}"
        if group:
            found = await link.api(doing, f"CONSUMER.INFO.{name}.{naming.consumer_of(group, lane)}")
            return Depth(found["num_pending"], found["num_ack_pending"])
        stream = await self._stream(lane.topic)
        subject = _filter(stream, lane)
        if not subject:
            return Depth(stream["state"]["messages"])
        found = await link.api(doing, f"STREAM.INFO.{name}", {"subjects_filter": subject})
        return Depth(sum((found["state"].get("subjects") or {}).values()))

    async def browse(self, lane: Lane, group: str, size: int) -> AsyncIterator[Sequence[Received[str]]]:
        stream = await self._stream(lane.topic)
        name, subject = self._name(lane.topic), _filter(stream, lane)
        link = await self._connection.link()
        piece: list[Received[str]] = []
        read, sequence = 0, stream["state"]["first_seq"]
        while sequence <= stream["state"]["last_seq"]:
            try:
                wanted = {"seq": sequence, "next_by_subj": subject or ">"}
                answer = await link.api(f"read {name}", f"STREAM.MSG.GET.{name}", wanted)
            except NotFound:
                break
            found = _stored(answer["message"], naming.subject_of(lane))
            if found.number > stream["state"]["last_seq"]:
                break
            piece.append(found)
            read += len(found.value or b"")
            sequence = found.number + 1
            if read >= size:
                yield piece
                piece, read = [], 0
        if piece:
            yield piece

    async def close(self) -> None:
        await self._connection.close()


def _subjects_in(stream: Mapping[str, Any]) -> Sequence[str]:
    """None for a mirror, which nobody can publish to."""
    return stream["config"].get("subjects") or ()


def _filter(stream: Mapping[str, Any], lane: Lane) -> str:
    """What a lane's consumer filters; empty if it is the whole stream. Raises `NotFound`."""
    lanes = naming.lanes_in(lane.topic, _subjects_in(stream))
    if lane.number >= lanes:
        raise NotFound(f"There is no lane {lane}.")
    return naming.subject_of(lane) if lanes > 1 else ""


def _from(sequence: int) -> Mapping[str, Any]:
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, sequence)}


def _subject_for(lane: Lane, stream: str, subjects: Sequence[str], message: Message) -> tuple[str, bool]:
    """Where a message is published, and whether it names that itself. Raises `Refused` if nobody says."""
    said = messages.subject_in(message)
    if said and naming.is_allowed(said) and any(naming.is_within(said, pattern) for pattern in subjects):
        return said, True
    own = naming.subject_of(lane)
    if any(naming.is_within(own, pattern) for pattern in subjects):
        return own, False
    plain = [subject for subject in subjects if "*" not in subject and ">" not in subject]
    if plain:
        return plain[0], False
    raise Refused(
        f"NATS: stream {stream} takes {', '.join(subjects) or 'no subjects'}: say which one in the header "
        f"{messages.SUBJECT} of the message"
    )


def _stored(message: Mapping[str, Any], lane_subject: str) -> Received[str]:
    place = messages.Place(message["seq"], 0, 1, nanoseconds(message["time"]))
    block = base64.b64decode(message.get("hdrs", ""))
    payload = base64.b64decode(message.get("data", ""))
    return messages.received("", place, message["subject"], lane_subject, block, payload)

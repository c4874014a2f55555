"""Telling Kafka how far lanes have come. On the poll thread, one commit at a time."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.kafka.errors import REBALANCING, kafka_error, translate
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds before a commit is sent again that met a rebalance
_AGAIN = 0.05
#: seconds in which it is
_RETRIED_FOR = 5.0
#: seconds without an answer after which the next one may go: longer than the library goes on trying, or an earlier
#: commit could arrive after a later one
_ABANDONED = 150.0
#: of one topic, while the others can be committed
_OF_ONE_TOPIC = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED))


@dataclass(slots=True, eq=False)
class Request:
    """Positions with their metadata, and who waits for the answer."""

    offsets: Mapping[Lane, tuple[int, str]]
    #: told on the poll thread; None: Kafka has it
    answer: Callable[[BrokerError | None], None]
    #: nobody waits any more
    is_dropped: Callable[[], bool]
    #: the starts of lanes that have none yet, and so are not told to the core yet
    pins: bool = False
    #: which assignments the lanes were in when it was made
    readings: dict[Lane, Reading] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)
    #: not before
    due: float = 0.0
    #: when; 0: is to be sent
    sent: float = 0.0
    #: what was sent
    told: dict[Lane, tuple[int, str]] = field(default_factory=dict)
    #: to be sent one by one, from the last; none: all at once
    topics: list[str] = field(default_factory=list)
    #: somebody looks whether Kafka has it
    watched: bool = False
    #: answered: nothing is sent of it any more
    over: bool = False


class Unanswered(NamedTuple):
    """What the library was given and will still answer for, though nobody waits for it."""

    told: Mapping[Lane, tuple[int, str]]
    sent: float


class Commits:
    """Sent without waiting, answered within a poll.

    Within a rebalance no answer comes, and to wait for one in the library has no bound. So there somebody else looks
    whether Kafka has it. The answer comes all the same, with a later poll, and says nothing of any other commit.
    """

    def __init__(self, readings: Mapping[Lane, Reading], vanished: Callable[[list[Lane]], None]) -> None:
        """`vanished` is told of lanes that Kafka does not know, or not for us; whoever asked is answered that they are
        gone."""
        self._readings = readings
        self._vanished = vanished
        self._waiting: deque[Request] = deque()
        self._pending: Request | None = None
        #: by age
        self._unanswered: deque[Unanswered] = deque()
        #: Kafka finds the metadata too large
        self._bare = False
        self.consumer: Consumer

    @property
    def idle(self) -> bool:
        return self._pending is None and not self._waiting

    def submit(self, request: Request) -> None:
        request.readings = {lane: self._readings[lane] for lane in request.offsets if lane in self._readings}
        self._waiting.append(request)

    def serve(self) -> None:
        """Between polls: send what is due, once all answers are here. A commit that the library may still be trying
        could arrive after a later one."""
        now = time.monotonic()
        if not any(now - each.sent < _ABANDONED for each in self._unanswered):
            self.serve_within_poll()

    def serve_within_poll(self) -> None:
        """Send what is due without waiting for answers: none come."""
        now = time.monotonic()
        pending = self._pending
        if pending is not None:
            if pending.sent and now - pending.sent > _ABANDONED:
                self._unanswered.append(Unanswered(pending.told, pending.sent))
                self._finish(Unavailable("Kafka: cannot commit: no answer"))
            elif not pending.sent and now >= pending.due:
                self._send()
        while self._pending is None and self._waiting:
            self._pending = self._waiting.popleft()
            if self._pending.is_dropped():
                self._pending = None
            else:
                self._send()

    def unwatched(self) -> Request | None:
        """What was sent and is not answered yet. Told once."""
        pending = self._pending
        if pending is None or not pending.sent or pending.watched:
            return None
        pending.watched = True
        return pending

    def confirm(self, request: Request, told: Mapping[Lane, tuple[int, str]]) -> None:
        """Kafka was seen to have this, which was sent of it."""
        if self._pending is request and request.sent and request.told is told:
            self._unanswered.append(Unanswered(told, request.sent))
            self._done(request)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Kafka's answer to what was sent without waiting. Called within a poll."""
        while self._unanswered and time.monotonic() - self._unanswered[0].sent > 2 * _ABANDONED:
            self._unanswered.popleft()
        positions = {Lane(each.topic, each.partition): each.offset for each in partitions}
        for each in self._unanswered:
            if _positions(each.told) == positions:
                self._unanswered.remove(each)
                return
        pending = self._pending
        if pending is not None and pending.sent and _positions(pending.told) == positions:
            self._judge(error, partitions)

    def end(self) -> None:
        """The consumer is closing: nothing more is sent."""
        while self._pending is not None or self._waiting:
            self._pending = self._pending or self._waiting.popleft()
            self._finish(LaneGone(self._pending.offsets.keys()))

    def _send(self) -> None:
        request = self._pending
        assert request is not None
        lanes = [lane for lane in request.offsets if self._owns(request, lane)]
        if request.topics:
            lanes = [lane for lane in lanes if lane.topic == request.topics[-1]]
        if not lanes:
            self._done(request)
            return
        request.sent, request.due, request.watched = time.monotonic(), 0.0, False
        request.told = {
            lane: (position, "" if self._bare else text)
            for lane, (position, text) in request.offsets.items()
            if lane in lanes
        }
        partitions = [TopicPartition(*lane, position, text) for lane, (position, text) in request.told.items()]
        try:
            self.consumer.commit(offsets=partitions, asynchronous=True)
        except KafkaException as error:
            self._judge(kafka_error(error), [])

    def _judge(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        request = self._pending
        assert request is not None
        worst = error or next((each.error for each in partitions if each.error is not None), None)
        if worst is None:
            self._done(request)
        elif worst.code() in _OF_ONE_TOPIC:
            self._search(request)
        elif worst.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and not self._bare:
            log.warning("the broker takes no acks beyond a position: its offset.metadata.max.bytes is too small")
            self._bare = True
            request.sent = 0.0
        elif worst.code() in REBALANCING and time.monotonic() - request.since < _RETRIED_FOR:
            request.sent, request.due = 0.0, time.monotonic() + _AGAIN
        else:
            self._finish(translate(worst, "commit"))

    def _done(self, request: Request) -> None:
        """Kafka has what was sent."""
        if len(request.topics) > 1:
            request.topics.pop()
            request.sent = 0.0
        else:
            self._finish(None)

    def _search(self, request: Request) -> None:
        """A topic was deleted, or the right to it was taken. The library may say so of all lanes of the commit,
        whichever it is: try topic by topic, so that the others are committed."""
        topics = {lane.topic for lane in request.told}
        if len(topics) > 1:
            request.topics = sorted(topics)
            request.sent = 0.0
            return
        if not request.pins:
            self._vanished([lane for lane in request.told if self._owns(request, lane)])
        for lane in request.told:
            request.readings.pop(lane, None)
        self._done(request)

    def _finish(self, error: BrokerError | None) -> None:
        request, self._pending = self._pending, None
        assert request is not None
        request.over = True
        if error is None:
            gone = [lane for lane in request.offsets if not self._owns(request, lane)]
            error = LaneGone(gone) if gone else None
        request.answer(error)

    def _owns(self, request: Request, lane: Lane) -> bool:
        """Still in the assignment that the request was made in."""
        reading = self._readings.get(lane)
        if reading is None or reading is not request.readings.get(lane):
            return False
        return request.pins or reading.phase is not Phase.ARRIVING


def _positions(told: Mapping[Lane, tuple[int, str]]) -> dict[Lane, int]:
    return {lane: position for lane, (position, _) in told.items()}

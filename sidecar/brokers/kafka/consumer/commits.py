"""Sends commits to Kafka, one at a time. On the poll thread."""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase
from sidecar.brokers.kafka.errors import REBALANCING, kafka_error, translate
from sidecar.model.errors import BrokerError, LaneGone, Unavailable
from sidecar.model.records import Lane
from sidecar.observability.logs import Log

log = Log("kafka")

#: seconds before a commit that failed during a rebalance is sent again, and for how long that is repeated
_RETRY_INTERVAL, _RETRY_TIMEOUT = 0.05, 5.0
#: seconds without a response after which the next commit may be sent: longer than the library retries, or an earlier
#: commit could arrive after a later one
_RESPONSE_TIMEOUT = 150.0
#: errors of one topic; the others can be committed
_OF_ONE_TOPIC = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED))

#: positions with their metadata
Offsets = Mapping[Lane, tuple[int, str]]


@dataclass(slots=True, eq=False)
class CommitRequest:
    """One commit of the core."""

    offsets: Offsets
    #: called once, on the poll thread; None: Kafka has the offsets
    on_done: Callable[[BrokerError | None], None]
    #: nobody waits for the result any more
    is_cancelled: Callable[[], bool]
    #: the starts of lanes that have no position yet; the core does not know of these lanes yet
    pins: bool = False
    #: the assignments that the lanes were in when the request was made
    readers: dict[Lane, LaneReader] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)
    #: do not send it earlier
    due: float = 0.0
    #: 0: not sent yet, or to be sent again
    sent_at: float = 0.0
    #: what was sent; another object each time
    sent: Offsets = field(default_factory=dict)
    #: to be sent one by one, from the last; empty: all at once
    topics: list[str] = field(default_factory=list)
    #: a query asks Kafka whether it has what was sent
    queried: bool = False
    #: Kafka did not take us for a member of the current epoch when it was sent
    refused: bool = False
    #: a query asks Kafka whether it has later positions of lanes that may have been lost; and it was answered
    checking: bool = False
    checked: bool = False
    #: nothing of it is sent any more
    done: bool = False


class _Unanswered(NamedTuple):
    """Offsets that the library will still report the response for, though nobody waits for it."""

    offsets: Offsets
    sent_at: float


class Commits:
    """Commits are sent without waiting; the response comes with a later poll.

    While a rebalance waits within a poll no response can come, and the library's blocking commit may block forever. So
    a query on the event loop asks Kafka whether it has the commit. The response still comes with a later poll, and must
    not be taken for that of another commit.

    Before a commit of lanes that are being revoked, and before one that was refused is sent again, a query reads what
    Kafka has. A later position is another sidecar's: then the lane was lost, however it looks from here, and ours would
    undo that commit. If nothing can be read, nothing is sent.
    """

    def __init__(
        self,
        readers: dict[Lane, LaneReader],
        restart: Callable[[list[Lane]], None],
        check: Callable[[CommitRequest, Collection[Lane]], None],
    ) -> None:
        """`restart` gets lanes that Kafka does not know, to which the right is missing, or that another sidecar had in
        between. The request reports them as gone. `check` asks Kafka for its positions of lanes; then `checked` must be
        called."""
        self._readers = readers
        self._restart = restart
        self._check = check
        self._waiting: deque[CommitRequest] = deque()
        self._current: CommitRequest | None = None
        #: by age
        self._unanswered: deque[_Unanswered] = deque()
        #: the broker refuses metadata of this length
        self._without_metadata = False
        self.consumer: Consumer

    @property
    def idle(self) -> bool:
        return self._current is None and not self._waiting

    def submit(self, request: CommitRequest) -> None:
        request.readers = {lane: self._readers[lane] for lane in request.offsets if lane in self._readers}
        self._waiting.append(request)

    def send_due(self) -> None:
        """Between polls: send what is due, but only when there is a response to every earlier commit. One that the
        library still retries could arrive after a later one."""
        now = time.monotonic()
        if not any(now - each.sent_at < _RESPONSE_TIMEOUT for each in self._unanswered):
            self.send_due_within_poll()

    def send_due_within_poll(self) -> None:
        """Send what is due without waiting for responses, since none can come."""
        now = time.monotonic()
        current = self._current
        if current is not None:
            if current.sent_at and now - current.sent_at > _RESPONSE_TIMEOUT:
                self._unanswered.append(_Unanswered(current.sent, current.sent_at))
                self._finish(Unavailable("Kafka: cannot commit: no answer"))
            elif not current.sent_at and now >= current.due:
                self._send()
        while self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            if self._current.is_cancelled():
                self._current = None
            else:
                self._send()

    def take_unqueried(self) -> CommitRequest | None:
        """The request that was sent and is neither answered nor queried yet; marks it as queried."""
        current = self._current
        if current is None or not current.sent_at or current.queried:
            return None
        current.queried = True
        return current

    def confirm(self, request: CommitRequest, sent: Offsets) -> None:
        """A query has seen that Kafka has what was sent."""
        if self._current is request and request.sent_at and request.sent is sent:
            self._unanswered.append(_Unanswered(sent, request.sent_at))
            self._on_sent(request)

    def checked(self, request: CommitRequest, stored: Mapping[Lane, int]) -> None:
        """A query has read the positions that Kafka has of the lanes that may have been lost."""
        request.checked = True
        owned = [lane for lane in stored if self._owns(request, lane)]
        # Our own may be later than this one: a seek goes back.
        lost = [lane for lane in owned if stored[lane] > max(request.offsets[lane][0], self._readers[lane].stored)]
        if not lost:
            return
        log.warning(
            "another sidecar has committed more of these lanes: they were lost, and are not committed", lanes=lost
        )
        for lane in lost:
            del request.readers[lane]
            if self._readers[lane].phase is Phase.REVOKED:
                del self._readers[lane]
        # If we have them again, they continue where the other sidecar came to.
        self._restart([lane for lane in lost if lane in self._readers])

    def on_response(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Called by the library within a poll."""
        while self._unanswered and time.monotonic() - self._unanswered[0].sent_at > 2 * _RESPONSE_TIMEOUT:
            self._unanswered.popleft()
        positions = {Lane(each.topic, each.partition): each.offset for each in partitions}
        for each in self._unanswered:
            if _positions(each.offsets) == positions:
                self._unanswered.remove(each)
                return
        current = self._current
        if current is not None and current.sent_at and _positions(current.sent) == positions:
            self._handle_response(error, partitions)

    def close(self) -> None:
        """The consumer is closing: nothing more is sent."""
        while self._current is not None or self._waiting:
            self._current = self._current or self._waiting.popleft()
            self._finish(LaneGone(self._current.offsets.keys()))

    def _send(self) -> None:
        request = self._current
        assert request is not None
        lanes = [lane for lane in request.offsets if self._owns(request, lane)]
        if request.topics:
            lanes = [lane for lane in lanes if lane.topic == request.topics[-1]]
        if not lanes:
            self._on_sent(request)
            return
        to_check = [lane for lane in lanes if request.refused or self._readers[lane].phase is Phase.REVOKED]
        if to_check and not request.checked:
            if not request.checking:
                request.checking = True
                self._check(request, to_check)
            return
        request.sent_at, request.due, request.queried = time.monotonic(), 0.0, False
        request.sent = {
            lane: (position, "" if self._without_metadata else metadata)
            for lane, (position, metadata) in request.offsets.items()
            if lane in lanes
        }
        partitions = [TopicPartition(*lane, position, metadata) for lane, (position, metadata) in request.sent.items()]
        try:
            self.consumer.commit(offsets=partitions, asynchronous=True)
        except KafkaException as error:
            self._handle_response(kafka_error(error), [])

    def _handle_response(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        request = self._current
        assert request is not None
        worst = error or next((each.error for each in partitions if each.error is not None), None)
        if worst is None:
            self._on_sent(request)
        elif worst.code() in _OF_ONE_TOPIC:
            self._isolate_topic(request)
        elif worst.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and not self._without_metadata:
            log.warning(
                "the broker refuses the metadata of commits, so acks beyond a position are not stored: its "
                "offset.metadata.max.bytes is too small"
            )
            self._without_metadata = True
            request.sent_at = 0.0
        elif worst.code() in REBALANCING and time.monotonic() - request.since < _RETRY_TIMEOUT:
            request.sent_at, request.due = 0.0, time.monotonic() + _RETRY_INTERVAL
            request.refused, request.checking, request.checked = not request.pins, False, False
        else:
            self._finish(translate(worst, "commit"))

    def _on_sent(self, request: CommitRequest) -> None:
        """Kafka has what was sent."""
        for lane in request.sent:
            if self._owns(request, lane):
                self._readers[lane].stored = max(self._readers[lane].stored, request.sent[lane][0])
        if len(request.topics) > 1:
            request.topics.pop()
            request.sent_at = 0.0
        else:
            self._finish(None)

    def _isolate_topic(self, request: CommitRequest) -> None:
        """A topic was deleted, or the right to it was taken away. The library may report that for all lanes of the
        commit: try topic by topic, so that the others are committed."""
        topics = {lane.topic for lane in request.sent}
        if len(topics) > 1:
            request.topics = sorted(topics)
            request.sent_at = 0.0
            return
        if not request.pins:
            self._restart([lane for lane in request.sent if self._owns(request, lane)])
        for lane in request.sent:
            request.readers.pop(lane, None)
        self._on_sent(request)

    def _finish(self, error: BrokerError | None) -> None:
        request, self._current = self._current, None
        assert request is not None
        request.done = True
        if error is None:
            gone = [lane for lane in request.offsets if not self._owns(request, lane)]
            error = LaneGone(gone) if gone else None
        request.on_done(error)

    def _owns(self, request: CommitRequest, lane: Lane) -> bool:
        """The lane is still in the assignment that the request was made in."""
        reader = self._readers.get(lane)
        if reader is None or reader is not request.readers.get(lane):
            return False
        return request.pins or reader.phase is not Phase.STARTING


def _positions(offsets: Offsets) -> dict[Lane, int]:
    return {lane: position for lane, (position, _) in offsets.items()}

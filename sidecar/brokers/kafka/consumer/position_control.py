"""Where the poll thread is in each lane, and control of the library's positions: pause, resume, seek.

Lanes are fetched by a consumer that is in no group. So what it is given and what is taken from it says nothing to
Kafka, and can change at any time between two of its polls, also while a revoke waits within a poll of the group. Of a
member, lanes could only change within its callbacks (see `rebalance`); a seek would not do instead. It is refused for
good after an error, such as a position that retention removed, and a fetch that is under way can still cause one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sidecar.brokers.base import Advanced, LaneEnd, Trouble
from sidecar.brokers.kafka.consumer.start_position import StartPosition
from sidecar.brokers.kafka.poll_buffer import PollBuffer, RefetchMeter
from sidecar.model.records import Assigned, Lane


class Phase(Enum):
    """STARTING -> ACTIVE -> REVOKED; ACTIVE <-> POSITION_LOST. The reader of a lane that is gone is dropped."""

    #: assigned, but where to start is not known yet; neither the core nor the fetching consumer know of the lane
    STARTING = 1
    ACTIVE = 2
    #: the position no longer exists; where to resume is not known yet
    POSITION_LOST = 3
    #: nothing more is delivered, but commits are accepted
    REVOKED = 4


@dataclass(slots=True, eq=False)
class LaneReader:
    """The state of one lane in one assignment."""

    lane: Lane
    phase: Phase = Phase.STARTING
    #: the next position to deliver
    next: int = 0
    #: by the core
    paused: bool = False
    #: nothing that the library returns counts before it is moved to `next`
    needs_seek: bool = False
    #: the last known ends
    end: LaneEnd | None = None
    #: records that were removed before they could be read
    lost: int = 0
    #: a record that follows `next` came after the last seek, so the library is where it should be
    verified: bool = False
    #: the first position after the last seek, if that left a gap
    doubted: int | None = None
    topic_id: str = ""
    #: the furthest position that Kafka is known to have of us, or had at the start
    stored: int = 0
    partition: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.partition = TopicPartition(*self.lane)

    @property
    def in_core(self) -> bool:
        """The core has the lane, and does not know that it is leaving. The fetching consumer has it, too."""
        return self.phase in (Phase.ACTIVE, Phase.POSITION_LOST)

    @property
    def fetches(self) -> bool:
        """The library may fetch."""
        return self.phase is Phase.ACTIVE and not self.paused

    @property
    def delivers(self) -> bool:
        """What the library returns counts. Also while paused: records that are on their way are in sequence."""
        return self.phase is Phase.ACTIVE and not self.needs_seek

    def seek_to(self, position: int) -> None:
        """Ask for the library to be moved to a position."""
        self.next, self.needs_seek = position, True
        self.verified, self.doubted = False, None

    def accepts_gap(self, position: int) -> bool:
        """Whether the log has nothing between `next` and `position`, which came now.

        Gaps are normal in Kafka. But a library that is not where it was moved to would look the same, and what it
        skipped would count as settled. So the first gap after each seek is accepted only when it is seen twice.
        """
        if self.verified or position <= self.next or (self.doubted is not None and position <= self.doubted):
            self.verified = True
            return True
        self.doubted = position
        self.needs_seek = True
        return False


class PositionControl:
    """Every lane continues exactly where the core is in it, whatever the library discards or fetches again.

    A pause discards what was fetched of the lane, and the library's position is then not ours. So whenever a lane
    continues, the library is moved to the `next` of its reader.
    """

    def __init__(self, readers: Mapping[Lane, LaneReader], buffer: PollBuffer, refetch_meter: RefetchMeter) -> None:
        self._readers = readers
        self._buffer = buffer
        self._refetch_meter = refetch_meter
        #: is in no group
        self.fetcher: Consumer

    def pause(self, lanes: Iterable[Lane]) -> None:
        for reader in self._known(lanes):
            if reader.paused:
                continue
            if reader.fetches:
                self.fetcher.pause([reader.partition])
            reader.paused = True
            if reader.phase is Phase.ACTIVE:
                self._discard_buffered(reader)

    def resume(self, lanes: Iterable[Lane]) -> None:
        for reader in self._known(lanes):
            if reader.paused:
                reader.paused = False
                reader.seek_to(reader.next)
        self.apply_seeks()

    def update_ends(self, ends: Mapping[Lane, LaneEnd]) -> None:
        """Take over ends that Kafka reported: the library does not learn those of paused lanes."""
        for reader in self._known(ends):
            if reader.end is not None:
                end = ends[reader.lane]
                reader.end = LaneEnd(max(end.start, reader.end.start), max(end.end, reader.end.end))

    def start(self, starts: Mapping[LaneReader, StartPosition]) -> dict[Lane, LaneEnd]:
        """Start lanes whose start is known now. Returns their ends."""
        ends: dict[Lane, LaneEnd] = {}
        for reader, start in starts.items():
            if self._readers.get(reader.lane) is not reader or reader.phase is not Phase.STARTING:
                continue
            reader.phase = Phase.ACTIVE
            reader.end = ends[reader.lane] = start.end
            reader.topic_id, reader.stored = start.topic_id, start.committed
            self._buffer.resume([reader.lane])
            self._buffer.add_event(
                Assigned(reader.lane, start.committed, start.settled, start.first, start.topic_id, start.reach)
            )
            self._report_skipped(reader, start)
            self._begin(reader, start.position)
        return ends

    def recover(self, reader: LaneReader, start: StartPosition) -> None:
        """Resume a lane whose position no longer exists."""
        if self._readers.get(reader.lane) is not reader or reader.phase is not Phase.POSITION_LOST:
            return
        reader.phase, reader.end = Phase.ACTIVE, start.end
        reader.topic_id = start.topic_id or reader.topic_id
        if start.position < reader.next:
            self._restart(reader, start.position)
        self._report_skipped(reader, start)
        self._begin_anew(reader, start.position)

    def move(self, positions: Mapping[Lane, int], on_moved: Callable[[], None]) -> None:
        """Move lanes for the core, when Kafka has the positions already."""
        for reader in self._known(positions):
            if reader.in_core:
                reader.phase = Phase.ACTIVE
                self._restart(reader, positions[reader.lane])
                self._begin_anew(reader, positions[reader.lane])
        on_moved()

    def apply_seeks(self) -> None:
        """Move the library to where the core is in lanes that need it, and let them fetch."""
        for reader in [reader for reader in self._readers.values() if reader.needs_seek]:
            if reader.phase is not Phase.ACTIVE or reader.paused:
                continue
            reader.needs_seek = False
            try:
                self.fetcher.seek(TopicPartition(*reader.lane, reader.next))
            except KafkaException:
                # The library refuses to seek before a lane has started, and after an error.
                self._begin_anew(reader, reader.next)
            else:
                self._pause_or_resume(reader)

    def stop(self, readers: Iterable[LaneReader]) -> None:
        """Fetch no more of these lanes. They are leaving, or start again later."""
        if fetched := [reader.partition for reader in readers if reader.in_core]:
            self.fetcher.incremental_unassign(fetched)

    def _discard_buffered(self, reader: LaneReader) -> None:
        """Drop buffered records: they would take the space of other lanes."""
        start = self._buffer.take_back(reader.lane)
        if start is not None:
            self._refetch_meter.count(reader.lane, start - reader.next)
            # Further records of the lane may come. After the dropped ones they would look like a gap, and the dropped
            # ones would count as settled: so nothing counts until the library is moved back.
            reader.seek_to(start)

    def _restart(self, reader: LaneReader, position: int) -> None:
        """A new epoch of the lane begins for the core."""
        self._buffer.drop([reader.lane])
        self._buffer.add_event(Assigned(reader.lane, position, topic_id=reader.topic_id))

    def _begin(self, reader: LaneReader, position: int) -> None:
        reader.seek_to(position)
        reader.needs_seek = False
        self.fetcher.incremental_assign([TopicPartition(*reader.lane, position)])
        self._pause_or_resume(reader)

    def _begin_anew(self, reader: LaneReader, position: int) -> None:
        """A seek does not suffice: it does not end a fetch in flight."""
        self.stop([reader])
        self._begin(reader, position)

    def _pause_or_resume(self, reader: LaneReader) -> None:
        if reader.fetches:
            self.fetcher.resume([reader.partition])
        else:
            self.fetcher.pause([reader.partition])

    def _report_skipped(self, reader: LaneReader, start: StartPosition) -> None:
        if start.position > start.committed:
            self._buffer.add_event(Advanced(reader.lane, start.position, start.lost))
        if start.lost:
            reader.lost += start.lost
            text = (
                f"{reader.lost:,} records of {reader.lane} were removed by the broker's retention before they could "
                f"be read: it continues at {start.position}"
            )
            self._buffer.add_event(Trouble(f"skipped in {reader.lane}", text))

    def _known(self, lanes: Iterable[Lane]) -> list[LaneReader]:
        return [self._readers[lane] for lane in lanes if lane in self._readers]

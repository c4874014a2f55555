"""Lanes that are assigned, revoked and lost. The library calls these within a poll of the group, on the poll thread.

The member of the group only holds lanes and commits; another consumer fetches them (`position_control`). So the member
changes its assignment in these callbacks and nowhere else. The library takes the next `incremental_unassign` for the
answer to a revoke, and the next `incremental_assign` for that to an assign, wherever they are called, and each clears
the mark of a lost assignment. A call between two polls could tell Kafka that lanes are free before `revoked` began, and
a member that Kafka had put out would be asked to hand its lanes over: its last commit would replace the next owner's.
"""

import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, TopicPartition

from sidecar.brokers.base import Lost, Revoked, Trouble
from sidecar.brokers.kafka.consumer.commits import CommitRequest, Commits
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase, PositionControl
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.records import Lane

#: seconds of the grace that are kept for the last commit of a lane, and their largest share of a short grace
_LAST_COMMIT = 1.0
_LAST_COMMIT_SHARE = 0.25


class Rebalance:
    """Keeps the readers in line with the assignment.

    A revoke waits until the core releases the lanes, at most for the grace. The other lanes are served meanwhile.
    """

    def __init__(
        self,
        readers: dict[Lane, LaneReader],
        commits: Commits,
        positions: PositionControl,
        buffer: PollBuffer,
        grace: float,
        *,
        on_assigned: Callable[[list[LaneReader]], None],
        query_commit: Callable[[CommitRequest], None],
        serve_core: Callable[[float], None],
    ) -> None:
        """`query_commit` asks Kafka whether it has a commit. `serve_core` runs what the core asks for and fetches other
        lanes, and waits at most this many seconds."""
        self._readers = readers
        self._commits = commits
        self._positions = positions
        self._buffer = buffer
        self._timeout = grace
        self._core_grace = grace - min(_LAST_COMMIT, grace * _LAST_COMMIT_SHARE)
        self._on_assigned = on_assigned
        self._query_commit = query_commit
        self._serve_core = serve_core
        self.closing = False
        #: seconds that revokes have waited
        self.waited = 0.0

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Does not wait: lanes are read once the event loop has found out where they start."""
        readers = [LaneReader(Lane(partition.topic, partition.partition)) for partition in partitions]
        self._readers.update((reader.lane, reader) for reader in readers)
        consumer.incremental_assign([])
        self._on_assigned(readers)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = _lanes(partitions)
        try:
            leaving = self._known_to_core(lanes)
            # The others must not start while these are waited for: the core would not hear that they are gone.
            self._drop([lane for lane in lanes if lane not in leaving])
            if leaving and not self.closing:
                self._wait_for_release(leaving)
        finally:
            self._drop(lanes)
            consumer.incremental_unassign([])

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = _lanes(partitions)
        known = frozenset(self._known_to_core(lanes))
        self._drop(lanes)
        consumer.incremental_unassign([])
        if known and not self.closing:
            self._buffer.add_event(Lost(known))

    def release(self, lanes: list[Lane]) -> None:
        """The core gives up revoked lanes."""
        for lane in lanes:
            if lane in self._readers and self._readers[lane].phase is Phase.REVOKED:
                del self._readers[lane]

    def _known_to_core(self, lanes: Collection[Lane]) -> dict[Lane, LaneReader]:
        known = {lane: self._readers[lane] for lane in lanes if lane in self._readers}
        return {lane: reader for lane, reader in known.items() if reader.phase is not Phase.STARTING}

    def _wait_for_release(self, leaving: Mapping[Lane, LaneReader]) -> None:
        began = time.monotonic()
        self._positions.stop(leaving.values())
        for reader in leaving.values():
            reader.phase = Phase.REVOKED
        self._buffer.drop(leaving)
        self._buffer.add_event(Revoked(frozenset(leaving), self._core_grace))
        while not self.closing:
            self._commits.send_due_within_poll()
            # The response would come with a poll of the group only, and the core waits for it before it releases the
            # lanes.
            if request := self._commits.take_unqueried():
                self._query_commit(request)
            left = began + self._timeout - time.monotonic()
            if left <= 0 or not self._any_left(leaving):
                break
            self._serve_core(left)
        self.waited += time.monotonic() - began

    def _any_left(self, leaving: Mapping[Lane, LaneReader]) -> bool:
        return any(self._readers.get(lane) is reader for lane, reader in leaving.items())

    def _drop(self, lanes: Collection[Lane]) -> None:
        readers = [self._readers.pop(lane) for lane in lanes if lane in self._readers]
        self._positions.stop(readers)
        for reader in readers:
            if reader.lost:
                self._buffer.add_event(Trouble(f"skipped in {reader.lane}", ""))
        self._buffer.drop(lanes)


def _lanes(partitions: list[TopicPartition]) -> list[Lane]:
    return [Lane(partition.topic, partition.partition) for partition in partitions]

"""Lanes that are assigned, revoked and lost. The library calls these within a poll, on the poll thread."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from sidecar.brokers.base import Lost, Revoked, Trouble
from sidecar.brokers.kafka.consumer.commits import CommitRequest, Commits
from sidecar.brokers.kafka.consumer.position_control import LaneReader, Phase
from sidecar.brokers.kafka.poll_buffer import PollBuffer
from sidecar.model.records import Lane

#: seconds of the grace that are kept for the last commit of a lane, and their largest share of a short grace
_LAST_COMMIT = 1.0
_LAST_COMMIT_SHARE = 0.25


class Rebalance:
    """Keeps the readers in line with the assignment.

    While a revoke waits for the core nothing is polled, and the other lanes are served from the buffer. So it waits no
    longer than necessary: until the core releases the lanes, at most for the grace.
    """

    def __init__(
        self,
        readers: dict[Lane, LaneReader],
        commits: Commits,
        buffer: PollBuffer,
        grace: float,
        *,
        on_assigned: Callable[[list[LaneReader]], None],
        query_commit: Callable[[CommitRequest], None],
        run_commands: Callable[[float], None],
    ) -> None:
        """`query_commit` asks Kafka whether it has a commit. `run_commands` runs what the core asks for, and waits at
        most so many seconds for it."""
        self._readers = readers
        self._commits = commits
        self._buffer = buffer
        self._timeout = grace
        self._core_grace = grace - min(_LAST_COMMIT, grace * _LAST_COMMIT_SHARE)
        self._on_assigned = on_assigned
        self._query_commit = query_commit
        self._run_commands = run_commands
        self.closing = False
        #: seconds that revokes have waited
        self.waited = 0.0

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Does not wait: lanes stay paused until the event loop has found out where they start."""
        readers = []
        for partition in partitions:
            # Any number: without one, the library would ask for the end, and could apply the response after a seek.
            partition.offset = 0
            reader = LaneReader(Lane(partition.topic, partition.partition))
            self._readers[reader.lane] = reader
            readers.append(reader)
        consumer.incremental_assign(partitions)
        if readers:
            consumer.pause(partitions)
        self._on_assigned(readers)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        leaving = self._known_to_core(partitions)
        if leaving and not self.closing:
            began = time.monotonic()
            for reader in leaving.values():
                reader.phase = Phase.REVOKED
            self._buffer.drop(leaving)
            self._buffer.add_event(Revoked(frozenset(leaving), self._core_grace))
            while self._any_left(leaving) and not self.closing:
                left = began + self._timeout - time.monotonic()
                if left <= 0:
                    break
                self._commits.send_due_within_poll()
                # The response would come with a poll only, and the core waits for it before it releases the lanes.
                if request := self._commits.take_unqueried():
                    self._query_commit(request)
                self._run_commands(left)
            self.waited += time.monotonic() - began
        self._drop(consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = frozenset(self._known_to_core(partitions))
        self._drop(consumer, partitions)
        if lanes and not self.closing:
            self._buffer.add_event(Lost(lanes))

    def release(self, lanes: list[Lane]) -> None:
        """The core gives up revoked lanes."""
        for lane in lanes:
            if lane in self._readers and self._readers[lane].phase is Phase.REVOKED:
                del self._readers[lane]

    def _known_to_core(self, partitions: list[TopicPartition]) -> dict[Lane, LaneReader]:
        lanes = [Lane(partition.topic, partition.partition) for partition in partitions]
        known = {lane: self._readers[lane] for lane in lanes if lane in self._readers}
        return {lane: reader for lane, reader in known.items() if reader.phase is not Phase.STARTING}

    def _any_left(self, leaving: dict[Lane, LaneReader]) -> bool:
        return any(self._readers.get(lane) is reader for lane, reader in leaving.items())

    def _drop(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = [Lane(partition.topic, partition.partition) for partition in partitions]
        for lane in lanes:
            reader = self._readers.pop(lane, None)
            if reader is not None and reader.lost:
                self._buffer.add_event(Trouble(f"skipped in {lane}", ""))
        self._buffer.drop(lanes)
        consumer.incremental_unassign(partitions)

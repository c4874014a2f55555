"""Lanes that come and go. The library calls these within a poll, on the poll thread."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from sidecar.brokers.base import Lost, Revoked, Trouble
from sidecar.brokers.kafka.consumer.commits import Commits, Request
from sidecar.brokers.kafka.lanes import Phase, Reading
from sidecar.brokers.kafka.poll_buffer import Shelf
from sidecar.model.records import Lane

#: seconds beyond the grace for the last commit of a lane, and its share of a short grace
_LAST_COMMIT = 1.0
_LAST_COMMIT_SHARE = 0.25


class Rebalance:
    """Keeps the readings as the group has them.

    While a revoke waits for the core, nothing is polled and the kept lanes live from what is fetched already. So it
    waits no longer than it must: until the core lets go, or for the grace and a moment for the last commit.
    """

    def __init__(
        self,
        readings: dict[Lane, Reading],
        commits: Commits,
        shelf: Shelf,
        grace: float,
        *,
        arrived: Callable[[list[Reading]], None],
        watch: Callable[[Request], None],
        meanwhile: Callable[[float], None],
    ) -> None:
        """`watch` looks whether Kafka has a commit. `meanwhile` does for so many seconds at the most what the core
        wants, and returns when it has."""
        self._readings = readings
        self._commits = commits
        self._shelf = shelf
        last = min(_LAST_COMMIT, grace * _LAST_COMMIT_SHARE)
        self._grace, self._bound = grace - last, grace
        self._arrived = arrived
        self._watch = watch
        self._meanwhile = meanwhile
        self.closing = False
        #: seconds that the kept lanes have lived from what was fetched already
        self.waited = 0.0

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Where a lane starts is asked elsewhere, so that this does not wait: until that is known it is paused."""
        readings = []
        for partition in partitions:
            # A number: the end would be asked for, and the answer could come after the lane was put to its place.
            partition.offset = 0
            reading = Reading(Lane(partition.topic, partition.partition))
            self._readings[reading.lane] = reading
            readings.append(reading)
        consumer.incremental_assign(partitions)
        if readings:
            consumer.pause(partitions)
        self._arrived(readings)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        leaving = self._take(partitions)
        if leaving and not self.closing:
            began = time.monotonic()
            for reading in leaving.values():
                reading.phase = Phase.LEAVING
            self._shelf.forget(leaving)
            self._shelf.tell(Revoked(frozenset(leaving), self._grace))
            while self._are_here(leaving) and not self.closing:
                left = began + self._bound - time.monotonic()
                if left <= 0:
                    break
                self._commits.serve_within_poll()
                # Its answer would come with a poll only: whoever waits for it could not let go.
                if request := self._commits.unwatched():
                    self._watch(request)
                self._meanwhile(left)
            self.waited += time.monotonic() - began
        self._drop(consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = frozenset(self._take(partitions))
        self._drop(consumer, partitions)
        if lanes and not self.closing:
            self._shelf.tell(Lost(lanes))

    def released(self, lanes: list[Lane]) -> None:
        """The core lets go of lanes that were revoked."""
        for lane in lanes:
            if lane in self._readings and self._readings[lane].phase is Phase.LEAVING:
                del self._readings[lane]

    def _take(self, partitions: list[TopicPartition]) -> dict[Lane, Reading]:
        """Those that the core knows of."""
        lanes = [Lane(partition.topic, partition.partition) for partition in partitions]
        known = {lane: self._readings[lane] for lane in lanes if lane in self._readings}
        return {lane: reading for lane, reading in known.items() if reading.phase is not Phase.ARRIVING}

    def _are_here(self, leaving: dict[Lane, Reading]) -> bool:
        return any(self._readings.get(lane) is reading for lane, reading in leaving.items())

    def _drop(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lanes = [Lane(partition.topic, partition.partition) for partition in partitions]
        for lane in lanes:
            reading = self._readings.pop(lane, None)
            if reading is not None and reading.lost:
                self._shelf.tell(Trouble(f"skipped in {lane}", ""))
        self._shelf.forget(lanes)
        consumer.incremental_unassign(partitions)

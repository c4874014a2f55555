"""Checks every commit of every test against promise 1, by what workers settled and what the broker stored."""

import json
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sidecar.core.failures import retry_topic
from sidecar.model.records import Commit, Lane, Message, Place, Run

#: lane and position of a record
RecordId = tuple[Lane, int]


class Audit:
    """What was published, how it was settled, and every commit that covers a record which is not settled."""

    def __init__(self) -> None:
        #: values by position
        self.published: dict[Lane, dict[int, bytes | None]] = defaultdict(dict)
        self.acked: set[RecordId] = set()
        self.dead: set[RecordId] = set()
        #: where each record was parked, oldest first
        self.parked: dict[RecordId, list[RecordId]] = defaultdict(list)
        #: lost by the choice of the user: discarded, or skipped by a seek
        self.given_up: set[RecordId] = set()
        self.violations: list[str] = []
        self._origins: dict[RecordId, RecordId] = {}
        #: positions that no commit has covered yet, ascending
        self._unchecked: dict[Lane, list[int]] = defaultdict(list)
        self._unsettled: dict[str, list[RecordId]] = defaultdict(list)

    def record_published(self, topic: str, messages: Sequence[Message], places: Sequence[Place]) -> None:
        """The broker has stored these."""
        for message, place in zip(messages, places, strict=True):
            record_id = Lane(topic, place.lane), place.position
            self.published[record_id[0]][record_id[1]] = message.value
            insort(self._unchecked[record_id[0]], record_id[1])
            self._unsettled[topic].append(record_id)
            headers = {header.name: header.value or b"" for header in message.headers}
            if "offramp-id" in headers:
                # Kafka's topics have an identity of their own.
                origin_place = headers["offramp-id"].decode().partition("@")[0]
                origin, lane, position = origin_place.rsplit("/", 2)
                self.dead.add((Lane(origin, int(lane)), int(position)))
            elif retry_topic.HEADER in headers:
                said = json.loads(headers[retry_topic.HEADER])
                came_from = Lane(said["topic"], said["lane"]), said["position"]
                self._origins[record_id] = came_from
                self.parked[came_from].append(record_id)

    def record_skipped(self, lane: Lane, position: int) -> None:
        """A seek went to the position: the user gave up what lies before it."""
        self.given_up.update((lane, before) for before in self.published[lane] if before < position)

    def record_dropped(self, record_ids: Iterable[RecordId]) -> None:
        self.given_up.update(record_ids)

    def check_commit(self, commits: Mapping[Lane, Commit]) -> None:
        """Call before the broker is given the commits."""
        for lane, commit in commits.items():
            unchecked = self._unchecked[lane]
            for start, stop in reversed((Run(0, commit.position), *commit.beyond)):
                covered = slice(bisect_left(unchecked, start), bisect_left(unchecked, stop))
                early = [position for position in unchecked[covered] if not self.is_settled((lane, position))]
                if early:
                    self.violations.append(f"{lane}: {commit} covers records that are not settled: {early}")
                # Settled records stay settled: they need no second check.
                del unchecked[covered]

    def is_settled(self, record_id: RecordId) -> bool:
        origin = self._origins.get(record_id, record_id)
        if origin in self.acked or origin in self.dead or record_id in self.given_up:
            return True
        parked = self.parked.get(origin, [])
        # Parking settles the original. A record of the retry topic is settled only by being parked once more.
        return bool(parked) if origin == record_id else record_id in parked[:-1]

    def unsettled(self, topic: str) -> list[RecordId]:
        """Records of a topic that are not acked, dead-lettered or given up yet. Parked ones are still to come."""
        self._unsettled[topic] = [
            record_id
            for record_id in self._unsettled[topic]
            if record_id not in self.acked and record_id not in self.dead and record_id not in self.given_up
        ]
        return self._unsettled[topic]

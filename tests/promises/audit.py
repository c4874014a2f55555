"""Holds every commit of every test against promise 1, from outside: by what workers said and what the broker took."""

import json
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sidecar.core.failures import retry_topic
from sidecar.model.records import Commit, Lane, Message, Place, Run

#: a record by its lane and position
Spot = tuple[Lane, int]


class Audit:
    """What was published, what became of it, and every commit that ran ahead of that."""

    def __init__(self) -> None:
        #: values by position
        self.published: dict[Lane, dict[int, bytes | None]] = defaultdict(dict)
        self.acked: set[Spot] = set()
        self.dead: set[Spot] = set()
        #: where each record was parked, oldest first
        self.parked: dict[Spot, list[Spot]] = defaultdict(list)
        #: what the user chose to lose: dropped, or skipped by a seek
        self.given_up: set[Spot] = set()
        self.violations: list[str] = []
        self._origins: dict[Spot, Spot] = {}
        #: positions that no commit has covered yet, ascending
        self._unchecked: dict[Lane, list[int]] = defaultdict(list)
        self._unsettled: dict[str, list[Spot]] = defaultdict(list)

    def published_to(self, topic: str, messages: Sequence[Message], places: Sequence[Place]) -> None:
        """The broker has these."""
        for message, place in zip(messages, places, strict=True):
            spot = Lane(topic, place.lane), place.position
            self.published[spot[0]][spot[1]] = message.value
            insort(self._unchecked[spot[0]], spot[1])
            self._unsettled[topic].append(spot)
            headers = {header.name: header.value or b"" for header in message.headers}
            if "offramp-id" in headers:
                origin, lane, position = headers["offramp-id"].decode().rsplit("/", 2)
                self.dead.add((Lane(origin, int(lane)), int(position)))
            elif retry_topic.HEADER in headers:
                said = json.loads(headers[retry_topic.HEADER])
                came_from = Lane(said["topic"], said["lane"]), said["position"]
                self._origins[spot] = came_from
                self.parked[came_from].append(spot)

    def skipped(self, lane: Lane, position: int) -> None:
        """A seek went there: what lies before is the user's choice."""
        self.given_up.update((lane, before) for before in self.published[lane] if before < position)

    def dropped(self, spots: Iterable[Spot]) -> None:
        self.given_up.update(spots)

    def commits(self, commits: Mapping[Lane, Commit]) -> None:
        """The broker is told so now."""
        for lane, commit in commits.items():
            unchecked = self._unchecked[lane]
            for start, stop in reversed((Run(0, commit.position), *commit.beyond)):
                covered = slice(bisect_left(unchecked, start), bisect_left(unchecked, stop))
                early = [position for position in unchecked[covered] if not self.is_settled((lane, position))]
                if early:
                    self.violations.append(f"{lane}: {commit} covers records that are not settled: {early}")
                # What is settled stays so.
                del unchecked[covered]

    def is_settled(self, spot: Spot) -> bool:
        origin = self._origins.get(spot, spot)
        if origin in self.acked or origin in self.dead or spot in self.given_up:
            return True
        parked = self.parked.get(origin, [])
        # A parked record settles its origin. A record of the retry topic itself must have got further than that.
        return bool(parked) if origin == spot else spot in parked[:-1]

    def unsettled(self, topic: str) -> list[Spot]:
        """Records of a topic of which nobody knows what became of them in the end."""
        self._unsettled[topic] = [
            spot
            for spot in self._unsettled[topic]
            if spot not in self.acked and spot not in self.dead and spot not in self.given_up
        ]
        return self._unsettled[topic]

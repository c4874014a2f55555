"""Which lanes a group begins with, and which came later. Pure.

Pulsar keeps no more of a group than its cursors, lane by lane. While the first of them are made, or if some could not
be, a lane without one may be either. But partitions are only ever added at the end.
"""

from collections.abc import Collection, Iterable

from sidecar.model.records import Lane


class Firsts:
    """For lanes that are about to be joined, of which those that are `there` have a cursor."""

    def __init__(self, there: Collection[Lane], later: Collection[str] = ()) -> None:
        """`later`: topics of which the group has joined all lanes that there were. One without a cursor came later, or
        has lost it, as when a topic is made anew."""
        self._there = there
        self._later = later
        #: by topic, the last lane that the group is in
        self._last: dict[str, int] = {}
        for lane in there:
            self._last[lane.topic] = max(lane.number, self._last.get(lane.topic, 0))

    def is_first(self, lane: Lane) -> bool:
        """The group begins with it."""
        return lane.topic not in self._later and lane.number <= self._last.get(lane.topic, lane.number)

    def turns(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """When to join each: those of the same turn at the same time.

        Another sidecar may look in between, and each turn may be the last one that works. So that a first lane never
        looks as if it had come later, the last of them is joined before all others; and so that none that came later
        looks like a first one, these are joined one by one.
        """
        turns: dict[Lane, int] = {}
        later: dict[str, int] = {}
        begun = set(self._last)
        lanes = sorted(lanes)
        for lane in lanes:
            if lane in self._there:
                turns[lane] = 0
            elif not self.is_first(lane):
                turns[lane] = later[lane.topic] = later.get(lane.topic, -1) + 1
        for lane in reversed(lanes):
            if lane not in turns:
                turns[lane] = int(lane.topic in begun)
                begun.add(lane.topic)
        return turns

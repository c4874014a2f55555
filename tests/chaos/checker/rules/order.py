"""Records come in the order that was chosen."""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.checker.history import Note
from tests.chaos.checker.history_index import Delivery, HistoryIndex, before
from tests.e2e.load.journal import Spot, Word

#: of a lane, or of a key in a lane: what must stay in order
_Name = tuple[int, str]


def in_order(index: HistoryIndex) -> Iterator[str]:
    """Records come in the order that was chosen."""
    if index.history.order == "none":
        return
    queues = _Queues(index)
    for note in index.history.notes:
        if note.word is Word.TOOK:
            yield from queues.within(note)
            yield from queues.past_earlier_ones(note)
            yield from queues.after_later_ones(note)


class _Queues:
    def __init__(self, index: HistoryIndex) -> None:
        self._index = index
        self._name_of: dict[Spot, _Name] = {}
        self._queues: dict[_Name, list[Spot]] = defaultdict(list)
        #: how many of the first of each queue are acked: that only grows
        self._heads: dict[_Name, int] = defaultdict(int)
        #: what was taken of each, by time
        self._taken: dict[_Name, list[tuple[Note, Spot]]] = defaultdict(list)
        #: what was taken after it had been acked
        self._again: dict[_Name, set[Spot]] = defaultdict(set)
        order = index.history.order
        for spot, stored in sorted(index.records.items()):
            if order == "lane" or stored.key is not None:
                self._name_of[spot] = (spot.lane, stored.key or "" if order == "key" else "")
                self._queues[self._name_of[spot]].append(spot)

    def within(self, note: Note) -> Iterator[str]:
        """Of a batch."""
        last: dict[_Name, Spot] = {}
        for entry in note.entries:
            name = self._name_of.get(entry.spot)
            if name is None:
                continue
            if name in last and entry.spot < last[name]:
                before_it = self._index.name(last[name])
                yield f"{self._index.name(entry.spot)} stands after {before_it} in a batch of {note.writer}"
            last[name] = max(entry.spot, last.get(name, entry.spot))

    def past_earlier_ones(self, note: Note) -> Iterator[str]:
        """Everything before a record is done, or in the same batch."""
        batch = {entry.spot for entry in note.entries}
        for spot in batch & self._name_of.keys():
            for earlier in self._not_acked_before(spot, note.at):
                if earlier not in batch and not self._is_out_of_the_way(earlier, note.at):
                    yield f"{self._index.timeline(spot)}; but before it comes {self._index.timeline(earlier)}"
                    break

    def after_later_ones(self, note: Note) -> Iterator[str]:
        """What comes again after something that stands behind it was not in its way, unless its lane began again."""
        for entry in note.entries:
            if (name := self._name_of.get(entry.spot)) is None:
                continue
            if later := self._overtook(name, entry.spot, note):
                yield f"{self._index.timeline(entry.spot)}; it came again after {self._index.timeline(later)}"
            self._taken[name].append((note, entry.spot))
            if self._is_acked(entry.spot, note.at):
                self._again[name].add(entry.spot)

    def _overtook(self, name: _Name, spot: Spot, note: Note) -> Spot | None:
        reasons = self._index.reasons
        for other, later in reversed(self._taken[name]):
            # A worker may have had this one in its queue while its sidecar took it for dead.
            if other is note or reasons.session_lost(note.writer, other.at, note.at):
                return None
            if later > spot and all(entry.spot != spot for entry in other.entries):
                return later
        return None

    def _not_acked_before(self, spot: Spot, at: float) -> Iterator[Spot]:
        """Of its queue, and those that were acked and are in somebody's hands again."""
        name = self._name_of[spot]
        queue = self._queues[name]
        while self._heads[name] < len(queue) and self._is_acked(queue[self._heads[name]], at):
            self._heads[name] += 1
        yield from (one for one in sorted(self._again[name]) if one < spot and self._is_in_hand(one, at))
        for earlier in queue[self._heads[name] :]:
            if earlier >= spot:
                return
            if not self._is_acked(earlier, at):
                yield earlier

    def _is_acked(self, spot: Spot, at: float) -> bool:
        return self._index.acked.get(spot, at) < at

    def _last(self, spot: Spot, at: float) -> Delivery | None:
        return max(before(self._index.deliveries[spot], at), key=lambda one: one.at, default=None)

    def _is_in_hand(self, spot: Spot, at: float) -> bool:
        last = self._last(spot, at)
        return last is not None and last.is_open(at) and not self._index.reasons.session_lost(last.writer, last.at, at)

    def _is_out_of_the_way(self, spot: Spot, at: float) -> bool:
        """A record that ends dead is, once it was tried for the last time: nobody has it, and if it comes again
        `after_later_ones` says so. Which try is the last is not known before."""
        return (
            bool(self._index.dead_letters[spot]) and self._last(spot, at) is not None and not self._is_in_hand(spot, at)
        )

"""Which records of a lane may go now. Pure, one per lane.

One rule serves all three orders. A record is *out* from its first delivery until it is settled (delivered, waiting
for a retry, or being put aside). Records may go together if every earlier record of the same key that is
not settled goes with them:

- `none`  no record minds any other
- `key`   records of one key mind each other; a record without a key minds nobody
- `lane`  all records of the lane mind each other

Fresh records arrive by `add` in the order of their positions and leave by `take`; records that came back ask by
`eligible`; `leave` says that records are settled.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from sidecar.core.state.record_slices import RecordSlice, joined
from sidecar.model.records import Order, Run
from sidecar.model.run_set import RunSet
from sidecar.model.wire import key_of

_ANY_SIZE = 1 << 62


class Ordering(ABC):
    """Fresh records of one lane, and who must wait for whom."""

    def __init__(self) -> None:
        self._fresh: deque[RecordSlice] = deque()
        #: fresh records, also those that wait for their key
        self.fresh_records = 0
        self.fresh_bytes = 0

    def add(self, slice_: RecordSlice) -> None:
        self._fresh.append(slice_)
        self.fresh_records += slice_.records
        self.fresh_bytes += slice_.size

    @abstractmethod
    def available(self) -> bool:
        """Whether `take` may give anything. May say yes in vain, never no."""

    @abstractmethod
    def take(self, records: int, size: int, before: int, *, force: bool = True) -> list[RecordSlice]:
        """Fresh records that may go now: at most so many, of at most so many bytes, below position `before`, which
        never falls.

        With `force` the first one is given even if it alone exceeds `size`. They are out from then on.
        """

    @abstractmethod
    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        """Of records of this lane that are out and came back, by position: those that may go now, and those that
        must wait."""

    @abstractmethod
    def leave(self, slices: Sequence[RecordSlice]) -> None:
        """These records are settled: nobody waits for them any more."""

    def first_position(self) -> int | None:
        """Of the record that `take` looks at next; None if there is none."""
        return _position(self._fresh[0]) if self._fresh else None

    def clear(self) -> None:
        """Forget all fresh records: the lane is going."""
        self._fresh.clear()
        self.fresh_records = self.fresh_bytes = 0

    def _pop(self, records: int, size: int, before: int) -> RecordSlice | None:
        """The next fresh records of one span within the limits; None if there are none."""
        if not self._fresh:
            return None
        slice_ = self._fresh[0]
        fits = self._fits(slice_, records, size, before)
        if fits <= 0:
            return None
        if fits < slice_.records:
            slice_, self._fresh[0] = slice_.cut(fits)
        else:
            self._fresh.popleft()
        self.fresh_records -= slice_.records
        self.fresh_bytes -= slice_.size
        return slice_

    @staticmethod
    def _fits(slice_: RecordSlice, records: int, size: int, before: int) -> int:
        chunk, start = slice_.chunk, slice_.start
        most = min(slice_.stop, start + records)
        if chunk.positions[most - 1] >= before:
            most = bisect_left(chunk.positions, before, start, most)
        if chunk.size(start, most) > size:
            used = chunk.ends[start - 1] if start else 0
            most = bisect_left(chunk.ends, used + size + 1, start, most)
        return most - start


class NoOrder(Ordering):
    def available(self) -> bool:
        return bool(self._fresh)

    def take(self, records: int, size: int, before: int, *, force: bool = True) -> list[RecordSlice]:
        out: list[RecordSlice] = []
        while records > 0:
            slice_ = self._pop(records, size, before)
            if slice_ is None:
                if force and not out and self._fresh:
                    slice_ = self._pop(1, _ANY_SIZE, before)
                if slice_ is None:
                    break
            out.append(slice_)
            records -= slice_.records
            size -= slice_.size
        return out

    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        return list(slices), []

    def leave(self, slices: Sequence[RecordSlice]) -> None:
        pass


class LaneOrder(NoOrder):
    def __init__(self) -> None:
        super().__init__()
        self._out = RunSet()

    def available(self) -> bool:
        return bool(self._fresh) and not self._out

    def take(self, records: int, size: int, before: int, *, force: bool = True) -> list[RecordSlice]:
        if self._out:
            return []
        out = super().take(records, size, before, force=force)
        for slice_ in out:
            self._out.add(slice_.run)
        return out

    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        first = self._out.first
        expected: int | None = first.start if first else None
        for index, slice_ in enumerate(slices):
            # All that is out before this record must go with it.
            if expected is None or slice_.run.start > expected:
                return list(slices[:index]), list(slices[index:])
            expected = self._out.next_from(slice_.run.stop)
        return list(slices), []

    def leave(self, slices: Sequence[RecordSlice]) -> None:
        for slice_ in slices:
            self._out.discard(slice_.run)


class KeyOrder(Ordering):
    def __init__(self) -> None:
        super().__init__()
        #: positions that are out, by key
        self._out: dict[bytes, RunSet] = {}
        #: fresh records that met their key out, by key
        self._held: dict[bytes, deque[RecordSlice]] = {}
        #: keys of held records that are out no more
        self._ready: deque[bytes] = deque()

    def available(self) -> bool:
        return bool(self._ready or self._fresh)

    def take(self, records: int, size: int, before: int, *, force: bool = True) -> list[RecordSlice]:
        out: list[RecordSlice] = []
        together: set[bytes] = set()
        waited = bool(self._ready)
        while records > 0:
            room = _ANY_SIZE if force and not out else size
            # What waited for its key goes before all that came later, so that it does not starve.
            single = self._pop_held(room, before) if self._ready else self._pop(1, room, before)
            if single is None:
                break
            key = key_of(single.chunk.frames[single.start])
            if key is not None:
                if key in self._out and key not in together:
                    self._hold(key, single)
                    continue
                together.add(key)
                self._go_out(key, single)
            out.append(single)
            records -= 1
            size -= single.size
        if self._ready and self._ready[0] in together:
            # Not all that was held of it went, so the rest waits again.
            self._ready.popleft()
        return joined(sorted(out, key=_position) if waited else out)

    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        go: list[RecordSlice] = []
        stay: list[RecordSlice] = []
        expected: dict[bytes, int | None] = {}
        for key, single in _by_key(slices):
            if key is None:
                go.append(single)
                continue
            positions = self._out[key]
            if key not in expected:
                first = positions.first
                expected[key] = first.start if first else None
            position = _position(single)
            if position == expected[key]:
                go.append(single)
                expected[key] = positions.next_from(position + 1)
            else:
                stay.append(single)
        return joined(go), joined(stay)

    def leave(self, slices: Sequence[RecordSlice]) -> None:
        for key, single in _by_key(slices):
            if key is None or key not in self._out:
                continue
            position = _position(single)
            self._out[key].discard(Run(position, position + 1))
            if not self._out[key]:
                del self._out[key]
                if key in self._held:
                    self._ready.append(key)

    def first_position(self) -> int | None:
        return _position(self._held[self._ready[0]][0]) if self._ready else super().first_position()

    def clear(self) -> None:
        super().clear()
        self._held.clear()
        self._ready.clear()

    def _go_out(self, key: bytes, single: RecordSlice) -> None:
        position = _position(single)
        self._out.setdefault(key, RunSet()).add(Run(position, position + 1))

    def _hold(self, key: bytes, single: RecordSlice) -> None:
        self._held.setdefault(key, deque()).append(single)
        self.fresh_records += 1
        self.fresh_bytes += single.size

    def _pop_held(self, size: int, before: int) -> RecordSlice | None:
        """The next record of the first key that is ready, if it is within the limits."""
        key = self._ready[0]
        held = self._held[key]
        if held[0].size > size or _position(held[0]) >= before:
            return None
        single = held.popleft()
        self.fresh_records -= 1
        self.fresh_bytes -= single.size
        if not held:
            del self._held[key]
            self._ready.popleft()
        return single


def make_ordering(order: Order) -> Ordering:
    if order is Order.KEY:
        return KeyOrder()
    return LaneOrder() if order is Order.LANE else NoOrder()


def _position(slice_: RecordSlice) -> int:
    return slice_.chunk.positions[slice_.start]


def _by_key(slices: Sequence[RecordSlice]) -> list[tuple[bytes | None, RecordSlice]]:
    return [(key_of(single.chunk.frames[single.start]), single) for slice_ in slices for single in slice_.singles()]

"""Which records of a lane may be delivered now. Pure, one per lane.

One rule serves all three orders. A record is *out* from its first delivery until it is settled: delivered, waiting for
its retry, or being written aside. Records may be delivered if every earlier unsettled record of their key is delivered
with them:

- `none`  no record has a key
- `key`   by the key of the record; a record without a key waits for none
- `lane`  all records of the lane have the same key

Fresh records arrive by `add` in the order of their positions and leave by `take`. `eligible` says which returned
records may be delivered. `leave` says that records are settled.
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
    """The fresh records of one lane, and which records must wait for which."""

    def __init__(self) -> None:
        self._fresh: deque[RecordSlice] = deque()
        #: including those that wait for their key
        self.fresh_records = 0
        self.fresh_bytes = 0

    def add(self, slice_: RecordSlice) -> None:
        """The slice belongs to the lane from now on, which cuts off what it delivers."""
        self._fresh.append(slice_)
        self.fresh_records += slice_.records
        self.fresh_bytes += slice_.size

    @abstractmethod
    def available(self) -> bool:
        """Whether `take` may return something. May return a false positive."""

    @abstractmethod
    def take(self, records: int, size: int, limit: int, *, force: bool = True) -> list[RecordSlice]:
        """Fresh records that may be delivered now: at most this many, of at most `size` bytes, before position `limit`,
        which never falls. They are out from then on.

        With `force` the first record may exceed `size`.
        """

    @abstractmethod
    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        """Splits returned records of this lane, sorted by position, into those that may be delivered now and those
        that must wait."""

    @abstractmethod
    def leave(self, slices: Sequence[RecordSlice]) -> None:
        """These records are settled: no other waits for them any more."""

    def first_position(self) -> int | None:
        """The position of the record that `take` considers next; None if there is none."""
        return _position(self._fresh[0]) if self._fresh else None

    def clear(self) -> None:
        """Forget all fresh records: the lane is not delivered any more."""
        self._fresh.clear()
        self.fresh_records = self.fresh_bytes = 0

    def _pop(self, records: int, size: int, limit: int) -> RecordSlice | None:
        """The next fresh records of one slice within the limits; None if there are none."""
        if not self._fresh:
            return None
        slice_ = self._fresh[0]
        fits = self._fits(slice_, records, size, limit)
        if fits <= 0:
            return None
        if fits < slice_.records:
            slice_ = slice_.take_first(fits)
        else:
            self._fresh.popleft()
        self.fresh_records -= slice_.records
        self.fresh_bytes -= slice_.size
        return slice_

    @staticmethod
    def _fits(slice_: RecordSlice, records: int, size: int, limit: int) -> int:
        chunk, start = slice_.chunk, slice_.start
        most = slice_.stop if slice_.records <= records else start + records
        if chunk.positions[most - 1] >= limit:
            most = bisect_left(chunk.positions, limit, start, most)
        used = chunk.ends[start - 1] if start else 0
        if chunk.ends[most - 1] - used > size:
            most = bisect_left(chunk.ends, used + size + 1, start, most)
        return most - start


class NoOrder(Ordering):
    def available(self) -> bool:
        return bool(self._fresh)

    def take(self, records: int, size: int, limit: int, *, force: bool = True) -> list[RecordSlice]:
        out: list[RecordSlice] = []
        while records > 0:
            slice_ = self._pop(records, size, limit)
            if slice_ is None:
                if force and not out and self._fresh:
                    slice_ = self._pop(1, _ANY_SIZE, limit)
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

    def take(self, records: int, size: int, limit: int, *, force: bool = True) -> list[RecordSlice]:
        if self._out:
            return []
        out = super().take(records, size, limit, force=force)
        for slice_ in out:
            self._out.add(slice_.run)
        return out

    def eligible(self, slices: Sequence[RecordSlice]) -> tuple[list[RecordSlice], list[RecordSlice]]:
        first = self._out.first
        expected: int | None = first.start if first else None
        for index, slice_ in enumerate(slices):
            # All records before this one that are out must go with it.
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
        #: fresh records whose key was out when they were due, by key
        self._blocked: dict[bytes, deque[RecordSlice]] = {}
        #: keys of blocked records that are not out any more
        self._ready: deque[bytes] = deque()

    def available(self) -> bool:
        return bool(self._ready or self._fresh)

    def take(self, records: int, size: int, limit: int, *, force: bool = True) -> list[RecordSlice]:
        out: list[RecordSlice] = []
        together: set[bytes] = set()
        waited = bool(self._ready)
        while records > 0:
            room = _ANY_SIZE if force and not out else size
            # Records that waited for their key go before all later ones, so that they do not starve.
            single = self._pop_blocked(room, limit) if self._ready else self._pop(1, room, limit)
            if single is None:
                break
            key = key_of(single.chunk.frames[single.start])
            if key is not None:
                if key in self._out and key not in together:
                    self._block(key, single)
                    continue
                together.add(key)
                self._go_out(key, single)
            out.append(single)
            records -= 1
            size -= single.size
        if self._ready and self._ready[0] in together:
            # Not all blocked records of this key were taken, so the rest waits again.
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
                if key in self._blocked:
                    self._ready.append(key)

    def first_position(self) -> int | None:
        return _position(self._blocked[self._ready[0]][0]) if self._ready else super().first_position()

    def clear(self) -> None:
        super().clear()
        self._blocked.clear()
        self._ready.clear()

    def _go_out(self, key: bytes, single: RecordSlice) -> None:
        position = _position(single)
        self._out.setdefault(key, RunSet()).add(Run(position, position + 1))

    def _block(self, key: bytes, single: RecordSlice) -> None:
        self._blocked.setdefault(key, deque()).append(single)
        self.fresh_records += 1
        self.fresh_bytes += single.size

    def _pop_blocked(self, size: int, limit: int) -> RecordSlice | None:
        """The next record of the first ready key, if it is within the limits."""
        key = self._ready[0]
        blocked = self._blocked[key]
        if blocked[0].size > size or _position(blocked[0]) >= limit:
            return None
        single = blocked.popleft()
        self.fresh_records -= 1
        self.fresh_bytes -= single.size
        if not blocked:
            del self._blocked[key]
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

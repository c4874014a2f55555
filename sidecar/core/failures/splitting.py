"""Splits a failing batch, to find the record that fails. Pure."""

from collections.abc import Sequence

from sidecar.core.state.record_slices import RecordSlice, count, cut, sort_by_position
from sidecar.model.records import Order
from sidecar.model.wire import key_of


def split_batch(slices: Sequence[RecordSlice], order: Order) -> tuple[list[RecordSlice], list[RecordSlice]]:
    """Two halves of a failing batch that, as far as the order allows, do not wait for each other.

    With order `key` the records of a key stay together; only if all have the same key are they cut in the middle. The
    halves may be uneven, which costs at most one more round of splitting.
    """
    middle = (count(slices) + 1) // 2
    if order is not Order.KEY:
        return cut(slices, middle)
    groups: dict[object, list[RecordSlice]] = {}
    for slice_ in slices:
        for single in slice_.singles():
            key = key_of(single.chunk.frames[single.start])
            name = object() if key is None else (single.lane, key)
            groups.setdefault(name, []).append(single)
    if len(groups) == 1:
        return cut(slices, middle)
    first: list[RecordSlice] = []
    second: list[RecordSlice] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        smaller = first if len(first) <= len(second) else second
        smaller.extend(group)
    return sort_by_position(first), sort_by_position(second)

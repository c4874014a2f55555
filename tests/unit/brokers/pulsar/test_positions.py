"""Message ids as positions, and counting between positions."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.pulsar.positions import EntryCounter, Id, after, cursor_entry, end, next_entry, pack, unpack
from sidecar.model.records import Run

ids = st.tuples(st.integers(0, (1 << 30) - 1), st.integers(0, (1 << 22) - 1), st.integers(0, (1 << 11) - 1))


@given(ids, ids)
def test_positions_compare_as_ids_do_and_unpack_to_them(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (pack(*one) < pack(*other)) == (one < other)
    assert unpack(pack(*one)) == one
    assert 0 <= pack(*one) < 1 << 63


def test_an_id_that_does_not_fit_has_no_position() -> None:
    assert pack(1 << 30, 0) == pack(0, 1 << 22) == pack(0, 0, 1 << 11) == pack(-1, -1) == -1
    assert after(3, -1) == pack(3, 0)
    assert after(3, 7) == pack(3, 8)


def test_the_end_lies_after_the_last_message_even_if_that_has_no_position() -> None:
    assert end(3, 7, -1) == pack(3, 7) + 1
    assert end(3, 7, 2_047) == end(3, 7, 5_000) == pack(3, 8)
    assert end(1 << 30, 0, 0) == end(-1, -1, -1) == -1


@pytest.mark.parametrize("per_entry", [1.0, 2.5, 100.0])
def test_counting_goes_from_ledger_to_ledger(per_entry: float) -> None:
    ledgers = ((3, 4), (7, 0), (9, 5))
    whole = EntryCounter(Run(pack(3, 0), pack(9, 4, 1)), ledgers, per_entry)
    assert whole.records == round(9 * per_entry)
    ends = [whole.position_after(ceil(entries * per_entry)) for entries in range(1, 10)]
    assert ends[3] == pack(3, 4)
    assert ends[4] == pack(9, 1)
    assert ends[-1] == pack(9, 4, 1)
    assert ends == sorted(set(ends))


def test_a_run_that_starts_in_a_removed_ledger_counts_the_next_one_from_its_beginning() -> None:
    rest = EntryCounter(Run(pack(1, 3), pack(9, 5)), ((3, 4), (9, 5)), 1.0)
    assert rest.records == 9
    assert [rest.position_after(records) for records in (1, 4, 5)] == [pack(3, 1), pack(3, 4), pack(9, 1)]


def test_records_within_one_entry_are_counted_exactly() -> None:
    rest = EntryCounter(Run(pack(3, 2, 4), pack(3, 2, 9)), ((3, 3),), 50.0)
    assert rest.records == 5
    assert [rest.position_after(records) for records in (1, 5, 9)] == [pack(3, 2, 5), pack(3, 2, 9), pack(3, 2, 9)]


def test_a_cursor_waits_at_the_entry_that_is_read_next_or_at_the_last_of_a_ledger_that_was_read() -> None:
    ledgers = ((3, 4), (7, 0), (9, 5), (11, 0))
    for position, entry in (
        (pack(3, 0), Id(3, 0)),
        (pack(3, 2), Id(3, 2)),
        (pack(3, 2, 7), Id(3, 2)),
        (pack(3, 3, 1), Id(3, 3)),
        (pack(3, 4), Id(3, 3)),
        (pack(7, 0), Id(3, 3)),
        (pack(9, 5), Id(9, 4)),
        (pack(11, 0), Id(9, 4)),
        (pack(1, 0), Id(3, 0)),
    ):
        assert cursor_entry(position, ledgers) == entry
    assert cursor_entry(pack(7, 0), ((7, 0),)) is None


def test_all_positions_between_two_entries_are_one() -> None:
    ledgers = ((3, 4), (7, 0), (9, 5), (11, 0))
    for position, place in (
        (pack(3, 3), pack(3, 3)),
        (pack(3, 4), pack(9, 0)),
        (pack(7, 0), pack(9, 0)),
        (pack(9, 0), pack(9, 0)),
        (pack(9, 5), pack(9, 5)),
        (pack(11, 0), pack(11, 0)),
        (pack(1, 5), pack(3, 0)),
    ):
        assert next_entry(position, ledgers) == place

"""Unacked messages: which position each gets, and which acks may be cumulative: none that covers a message that has not
arrived, and that the broker has no ack for."""

from collections.abc import Iterable
from typing import Any

import pulsar
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.brokers.pulsar.positions import Id, pack
from sidecar.brokers.pulsar.unacked import UnackedMessages
from sidecar.model.records import Commit, Run
from tests.unit.brokers.pulsar.pulsar_kit import MessageId


def test_a_message_in_order_gets_its_id_as_position() -> None:
    unacked = UnackedMessages()
    assert [unacked.add(MessageId(4, entry)) for entry in range(3)] == [pack(4, entry) for entry in range(3)]


def test_a_message_that_a_lost_consumer_had_gets_the_next_free_position() -> None:
    unacked = UnackedMessages()
    first = unacked.add(MessageId(4, 10))
    late = MessageId(4, 2)
    assert unacked.add(late) == first + 1
    assert unacked.add(MessageId(4, 11)) == pack(4, 11)
    assert unacked.take(Commit(first, (Run(first + 1, first + 2),))).messages == (late,)


def test_a_message_that_arrives_again_while_it_is_unacked_is_a_duplicate() -> None:
    unacked = UnackedMessages()
    for message in (MessageId(4, 1), MessageId(4, 2), MessageId(3, 9), MessageId(1 << 40, 0), MessageId(1 << 40, 1)):
        assert unacked.add(message) >= 0
        assert unacked.add(message) == -1
    # Once it is acked, it counts again: the ack may have been lost, or somebody has reset the cursor.
    unacked.take(Commit(unacked.next))
    assert unacked.add(MessageId(4, 1)) >= 0


def test_ids_that_do_not_fit_are_consumed_all_the_same() -> None:
    unacked = UnackedMessages()
    messages = [MessageId(4, 0, index) for index in range(5000)]
    positions = [unacked.add(message) for message in messages]
    assert positions == sorted(set(positions))
    assert unacked.take(Commit(positions[-1] + 1)).messages == tuple(messages)
    assert not len(unacked)


def test_messages_with_ids_of_the_library_can_be_counted() -> None:
    unacked = UnackedMessages()
    first, *_ = [unacked.add(pulsar.MessageId(-1, 4, entry, -1)._msg_id) for entry in range(3)]
    unacked.take(Commit(first, (Run(pack(4, 1), pack(4, 2)),)))
    assert len(unacked) == 2


def test_messages_before_a_sought_position_in_the_same_entry_are_skipped() -> None:
    unacked = UnackedMessages()
    unacked.reset(pack(4, 7, 3), sought=True)
    before = [MessageId(4, 7, index) for index in range(3)]
    assert [unacked.add(message) for message in before] == [-1] * 3
    assert unacked.skipped == before
    assert unacked.add(MessageId(4, 7, 3)) == pack(4, 7, 3)
    # Only at first: later they arrive because somebody has reset the cursor.
    assert unacked.add(before[0]) >= 0


def test_in_an_exclusive_lane_an_acked_message_arrives_only_if_the_broker_has_gone_back() -> None:
    unacked = UnackedMessages(ascending=True)
    unacked.reset(pack(4, 1))
    for entry in range(1, 4):
        assert unacked.add(MessageId(4, entry)) == pack(4, entry)
    # An unacked message arrives again after a reconnect.
    assert unacked.add(MessageId(4, 1)) == -1
    assert not unacked.gone_back
    unacked.take(Commit(pack(4, 1), (Run(pack(4, 2), pack(4, 3)),)))
    assert unacked.add(MessageId(4, 2)) == -1
    assert unacked.gone_back
    unacked.reset(pack(4, 1))
    assert not unacked.gone_back
    # The same holds for a message before the start.
    assert unacked.add(MessageId(4, 0)) == -1
    assert unacked.gone_back


def test_ids_that_do_not_fit_do_not_look_as_if_the_broker_had_gone_back() -> None:
    unacked = UnackedMessages(ascending=True)
    messages = [*(MessageId(4, 0, index) for index in range(3000)), *(MessageId(4, entry) for entry in range(1, 9))]
    positions = [unacked.add(message) for message in messages]
    assert positions == sorted(set(positions))
    assert not unacked.gone_back
    # Positions no longer tell which entries have arrived: each message is acked by itself.
    assert unacked.take(Commit(unacked.next)) == (None, tuple(messages))
    assert unacked.add(MessageId(4, 0, 2999)) == -1
    assert unacked.gone_back


@settings(deadline=None)
@given(st.data())
def test_every_message_is_acked_once_whatever_the_order_of_arrival_and_commits(data: st.DataObject) -> None:
    unacked, arrived, acked = UnackedMessages(), {}, []
    for _ in range(data.draw(st.integers(1, 30))):
        message = MessageId(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 5)), data.draw(st.integers(-1, 3)))
        position = unacked.add(message)
        found = Id(message.ledger, message.entry, max(0, message.index))
        assert (position < 0) == (found in arrived.values())
        if position >= 0:
            assert position > max(arrived, default=-1)
            arrived[position] = found
        settled = set(data.draw(st.sets(st.sampled_from(sorted(arrived))))) if arrived else set()
        floor = min(set(arrived) - settled, default=unacked.next)
        beyond = tuple(Run(one, one + 1) for one in sorted(settled) if one > floor)
        taken = unacked.take(Commit(floor, beyond))
        told = [Id(m.ledger_id(), m.entry_id(), max(0, m.batch_index())) for m in taken.messages]
        assert told == [arrived.pop(one) for one in sorted(one for one in arrived if one < floor or one in settled)]
        acked += told
    assert len(unacked) == len(arrived)


def joined(*, start: int = pack(4, 0)) -> UnackedMessages:
    """The messages of an exclusive lane, of which all before `start` is acked."""
    unacked = UnackedMessages(ascending=True)
    unacked.reset(start)
    return unacked


def arrive(unacked: UnackedMessages, *entries: int, ledger: int = 4) -> list[MessageId]:
    ids = [MessageId(ledger, entry) for entry in entries]
    for id_ in ids:
        assert unacked.add(id_) >= 0
    return ids


def test_a_cumulative_ack_covers_entries_that_have_all_arrived() -> None:
    unacked = joined()
    arrive(unacked, 0, 1, 2)
    assert unacked.take(Commit(pack(4, 1) + 1)) == ((4, 1), ())
    assert not unacked.has_gaps


def test_each_message_of_a_batch_that_may_be_incomplete_is_acked_by_itself() -> None:
    unacked = joined()
    arrive(unacked, 0, 1)
    batch = [MessageId(4, 2, index) for index in (0, 3)]
    for id_ in batch:
        unacked.add(id_)
    assert unacked.take(Commit(unacked.next)) == ((4, 1), tuple(batch))
    # The batch was complete, as the next entry shows.
    rest = MessageId(4, 2, 4)
    unacked.add(rest)
    arrive(unacked, 3)
    assert unacked.take(Commit(unacked.next)) == ((4, 3), ())


def test_each_message_behind_a_missing_entry_is_acked_by_itself() -> None:
    unacked = joined()
    _, between, chunked = arrive(unacked, 0, 2, 3)
    # 4:1 is the first chunk of a message, and 4:3 the last, which gives it its id.
    assert unacked.take(Commit(pack(4, 3))) == ((4, 0), (between,))
    (later,) = arrive(unacked, 4)
    assert unacked.take(Commit(unacked.next)) == (None, (chunked, later))


def test_a_gap_before_the_first_message_counts() -> None:
    unacked = joined(start=pack(4, 5))
    ids = arrive(unacked, 6)
    assert unacked.take(Commit(unacked.next)) == (None, tuple(ids))


def test_a_start_that_the_broker_has_no_acks_before_is_a_gap() -> None:
    unacked = UnackedMessages(ascending=True)
    unacked.reset(0)
    first = arrive(unacked, 5)
    unacked.reset(pack(4, 5), acked_before=False)
    second = arrive(unacked, 5)
    assert unacked.take(Commit(unacked.next)) == (None, tuple(second))
    assert first == second


def test_the_start_of_a_new_ledger_is_a_gap() -> None:
    unacked = joined()
    arrive(unacked, 0)
    new = arrive(unacked, 0, 1, ledger=7)
    assert unacked.take(Commit(unacked.next)) == ((4, 0), tuple(new))


def test_acks_are_cumulative_again_when_the_broker_has_passed_the_gap() -> None:
    unacked = joined()
    arrive(unacked, 0)
    arrive(unacked, 0, 1, ledger=7)
    unacked.take(Commit(unacked.next))
    unacked.close_gaps(pack(4, 1))
    assert unacked.has_gaps
    unacked.close_gaps(pack(7, 2))
    assert not unacked.has_gaps
    arrive(unacked, 2, 3, ledger=7)
    assert unacked.take(Commit(unacked.next)) == ((7, 3), ())


def test_of_the_gaps_before_a_commit_only_the_last_is_kept() -> None:
    unacked = joined()
    for entry in range(1, 2001, 2):
        arrive(unacked, entry)
        unacked.take(Commit(unacked.next))
    assert len(unacked._gaps) == 1
    # The broker must have passed all of them.
    unacked.close_gaps(pack(4, 1998))
    assert unacked.has_gaps
    unacked.close_gaps(pack(4, 1999))
    assert not unacked.has_gaps


def test_a_message_that_was_acked_beyond_the_position_is_no_gap() -> None:
    unacked = joined()
    arrive(unacked, 0, 1, 2)
    assert unacked.take(Commit(pack(4, 0), (Run(pack(4, 1), pack(4, 2)),))) == (None, (MessageId(4, 1),))
    assert unacked.take(Commit(unacked.next)) == ((4, 2), ())


@settings(deadline=None)
@given(st.data())
def test_an_ack_never_covers_a_message_that_has_not_arrived(data: st.DataObject) -> None:
    """Entries of two ledgers, some of them batches, some withheld; commits, and cursors of the broker, in between."""
    unacked = joined(start=pack(4, 0))
    entries = [(4, entry) for entry in range(data.draw(st.integers(0, 6)))]
    entries += [(5, entry) for entry in range(data.draw(st.integers(0, 6)))]
    sizes = {entry: data.draw(st.integers(0, 3)) for entry in entries}
    acked: set[Id] = set()
    waiting: dict[int, Id] = {}
    for ledger, entry in entries:
        size = sizes[ledger, entry]
        if not size:
            continue
        for index in range(size):
            position = unacked.add(MessageId(ledger, entry, index if size > 1 else -1))
            waiting[position] = Id(ledger, entry, index)
        settled = data.draw(st.sets(st.sampled_from(sorted(waiting)))) if waiting else set()
        floor = min(set(waiting) - settled, default=unacked.next)
        taken = unacked.take(Commit(floor, tuple(Run(one, one + 1) for one in sorted(settled) if one > floor)))
        told = {Id(id_.ledger_id(), id_.entry_id(), max(0, id_.batch_index())) for id_ in taken.messages}
        if taken.upto is not None:
            spoken_for = {entry for entry in entries if entry <= taken.upto}
            assert all(sizes[entry] for entry in spoken_for)
            told |= {Id(*entry, index) for entry in spoken_for for index in range(sizes[entry])}
        done = {waiting.pop(one) for one in [*waiting] if one < floor or one in settled}
        # All that is settled is acked, and nothing else.
        assert done <= told | acked
        assert told <= done | acked
        acked |= told
        if data.draw(st.booleans()):
            unacked.close_gaps(pack(*_first_unacked(entries, sizes, acked)))


def _first_unacked(entries: Iterable[tuple[int, int]], sizes: dict[tuple[int, int], int], acked: set[Id]) -> Any:
    """Where the broker's cursor is; entries that are withheld are not acked."""
    for entry in entries:
        if not sizes[entry] or any(Id(*entry, index) not in acked for index in range(sizes[entry])):
            return entry
    return 9, 0

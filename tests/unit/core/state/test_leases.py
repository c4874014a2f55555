"""Leases: granted, extended, settled, ended."""

import re

import pytest

from sidecar.core.state.lane import LanePhase
from sidecar.core.state.leases import REMEMBERED, REMEMBERED_OUTCOMES, Lease, LeasePhase, Leases, SettledPart
from sidecar.core.state.record_slices import RecordSlice, RedeliveryGroup, RedeliveryState
from sidecar.model.reasons import Reason
from sidecar.model.records import ExtendStatus, Outcome, Part, Range, Settlement, SettleResult, SettleStatus
from tests.kit import lane_state, places_of, positions_of, slice_of

NOW = 100.0
LONGEST = 60.0


def granted(leases: Leases[str], records: int = 5, limit: float = 10.0) -> Lease[str]:
    return leases.grant("worker", [slice_of(records)], NOW, limit, LONGEST)


def settle(leases: Leases[str], lease: Lease[str], outcome: Outcome | None, *parts: Part) -> SettleResult:
    return leases.settle(Settlement(lease.id, outcome, parts=parts))[0]


def settled(leases: Leases[str], lease: Lease[str], outcome: Outcome | None, *parts: Part) -> list[SettledPart]:
    return leases.settle(Settlement(lease.id, outcome, parts=parts))[2]


def ended(leases: Leases[str], lease: Lease[str]) -> RedeliveryGroup:
    """The lease ends without a settlement, and its records wait for their next delivery."""
    group = RedeliveryGroup([*leases.end(lease)], NOW, expired_lease=lease)
    lease.redeliveries.append(group)
    return group


@pytest.fixture
def leases() -> Leases[str]:
    return Leases(b"boot-and-subscription")


def test_neighbours_with_one_outcome_are_remembered_as_one_entry(leases: Leases[str]) -> None:
    lease = granted(leases)
    for index in (3, 0, 4, 2, 1):
        settle(leases, lease, None, Part(index, 1, Outcome.ACK))
    assert lease.outcomes == [(0, 5, Outcome.ACK)]
    assert lease.settled is None
    assert settle(leases, lease, Outcome.ACK).status is SettleStatus.SETTLED
    assert settle(leases, lease, Outcome.NACK).stale == (Range(0, 5),)


def test_neighbours_with_another_outcome_are_remembered_apart(leases: Leases[str]) -> None:
    lease = granted(leases)
    for index in (3, 0, 4, 2, 1):
        settle(leases, lease, None, Part(index, 1, Outcome.NACK if index == 2 else Outcome.ACK))
    assert lease.outcomes == [(0, 2, Outcome.ACK), (2, 1, Outcome.NACK), (3, 2, Outcome.ACK)]
    assert settle(leases, lease, Outcome.ACK).stale == (Range(2, 1),)


def test_a_lease_id_is_the_prefix_and_a_counter(leases: Leases[str]) -> None:
    assert granted(leases).id == b"boot-and-subscription" + bytes([0, 0, 0, 0, 0, 1])
    assert granted(leases).id == b"boot-and-subscription" + bytes([0, 0, 0, 0, 0, 2])


def test_one_outcome_settles_the_whole_batch(leases: Leases[str]) -> None:
    lease = granted(leases)
    result, whose, (done,) = leases.settle(Settlement(lease.id, Outcome.ACK))
    assert result == SettleResult(lease.id, SettleStatus.SETTLED)
    assert whose is lease
    assert positions_of(done.slices) == [0, 1, 2, 3, 4]
    assert not done.blamed
    assert len(leases) == 0


def test_parts_are_settled_by_their_outcome_and_the_rest_by_that_of_the_batch(leases: Leases[str]) -> None:
    done = settled(leases, granted(leases), Outcome.ACK, Part(1, 2, Outcome.NACK))
    assert [(each.part.outcome, positions_of(each.slices)) for each in done] == [
        (Outcome.ACK, [0]),
        (Outcome.NACK, [1, 2]),
        (Outcome.ACK, [3, 4]),
    ]
    assert all(each.blamed for each in done)


def test_a_partial_settlement_leaves_the_other_records_leased(leases: Leases[str]) -> None:
    lease = granted(leases)
    assert settle(leases, lease, None, Part(0, 2, Outcome.ACK)).status is SettleStatus.SETTLED
    assert len(leases) == 1
    assert positions_of(settled(leases, lease, Outcome.ACK)[0].slices) == [2, 3, 4]
    assert len(leases) == 0


def test_settling_twice_is_harmless(leases: Leases[str]) -> None:
    lease = granted(leases)
    settle(leases, lease, Outcome.ACK)
    result, _, done = leases.settle(Settlement(lease.id, Outcome.ACK))
    assert (result.status, done) == (SettleStatus.SETTLED, [])


def test_settling_otherwise_than_before_is_stale_where_it_differs(leases: Leases[str]) -> None:
    lease = granted(leases)
    settle(leases, lease, Outcome.ACK, Part(1, 2, Outcome.NACK))
    result = settle(leases, lease, Outcome.ACK)
    assert result.status is SettleStatus.STALE
    assert result.stale == (Range(1, 2),)


def test_a_lease_that_never_was_is_unknown(leases: Leases[str]) -> None:
    result, lease, done = leases.settle(Settlement(b"another life", Outcome.ACK))
    assert (result.status, lease, done) == (SettleStatus.UNKNOWN, None, [])
    assert "before a restart" in result.detail


def test_a_lease_settled_long_ago_is_unknown(leases: Leases[str]) -> None:
    first = granted(leases, 1)
    settle(leases, first, Outcome.ACK)
    for _ in range(REMEMBERED):
        settle(leases, granted(leases, 1), Outcome.ACK)
    assert settle(leases, first, Outcome.ACK).status is SettleStatus.UNKNOWN


def test_leases_with_many_outcomes_are_forgotten_sooner_so_that_they_fill_no_memory(leases: Leases[str]) -> None:
    records = 1_000
    every_other = [Part(at, 1, Outcome.NACK) for at in range(0, records, 2)]
    kept = []
    for late in [False, True] * (REMEMBERED_OUTCOMES // records):
        lease = granted(leases, records)
        if late:
            ended(leases, lease)
        settle(leases, lease, Outcome.ACK, *every_other)
        kept.append(lease)
    remembered = [lease for lease in kept if settle(leases, lease, Outcome.ACK).status is not SettleStatus.UNKNOWN]
    assert remembered == kept[len(kept) // 2 :]
    assert sum(len(lease.outcomes) for lease in remembered) <= REMEMBERED_OUTCOMES


def test_a_late_ack_counts_while_the_records_wait_for_their_next_delivery(leases: Leases[str]) -> None:
    lease = granted(leases)
    group = ended(leases, lease)
    done = settled(leases, lease, Outcome.ACK)
    assert sorted(position for each in done for position in positions_of(each.slices)) == [0, 1, 2, 3, 4]
    assert group.state is RedeliveryState.GONE


def test_a_late_nack_is_counted_and_changes_nothing_for_what_waits_already(leases: Leases[str]) -> None:
    lease = granted(leases)
    group = ended(leases, lease)
    result, _, done = leases.settle(Settlement(lease.id, Outcome.NACK))
    assert result.status is SettleStatus.SETTLED
    assert sum(each.part.count for each in done) == 5
    assert all(each.waits for each in done)
    assert positions_of(group.slices) == [0, 1, 2, 3, 4]


def test_a_late_nack_gets_the_same_answer_again_whatever_became_of_its_records(leases: Leases[str]) -> None:
    lease = granted(leases)
    group = ended(leases, lease)
    settle(leases, lease, Outcome.NACK)
    assert settle(leases, lease, Outcome.ACK).stale == (Range(0, 5),), "it was settled otherwise"
    group.state = RedeliveryState.LEASED
    leases.group_finished(group)
    result, _, done = leases.settle(Settlement(lease.id, Outcome.NACK))
    assert (result.status, done) == (SettleStatus.SETTLED, [])


def test_a_late_ack_of_records_given_to_another_is_stale(leases: Leases[str]) -> None:
    lease = granted(leases)
    ended(leases, lease).state = RedeliveryState.LEASED
    result = settle(leases, lease, Outcome.ACK)
    assert result.status is SettleStatus.STALE
    assert result.stale == (Range(0, 5),)


def test_a_late_ack_names_the_records_that_are_stale(leases: Leases[str]) -> None:
    lease = granted(leases)
    group = ended(leases, lease)
    group.slices = [RecordSlice.slice(group.slices[0], 2, 5)]  # the first two were given to another
    result, _, done = leases.settle(Settlement(lease.id, Outcome.ACK))
    assert result.stale == (Range(0, 2),)
    assert sorted(position for each in done for position in positions_of(each.slices)) == [2, 3, 4]


def test_only_what_was_unsettled_comes_back_when_a_lease_ends(leases: Leases[str]) -> None:
    lease = granted(leases)
    settle(leases, lease, None, Part(1, 3, Outcome.ACK))
    assert positions_of(leases.end(lease)) == [0, 4]


def test_its_time_starts_when_the_batch_was_written(leases: Leases[str]) -> None:
    lease = granted(leases, limit=10.0)
    leases.mark_written([lease.id], NOW + 5.0)
    assert leases.next_deadline() == NOW + 15.0


def test_a_batch_that_is_never_written_ends_after_the_longest_time(leases: Leases[str]) -> None:
    lease = granted(leases, limit=10.0)
    assert leases.expire(NOW + LONGEST - 1.0) == []
    assert leases.expire(NOW + LONGEST) == [lease]


def test_writing_it_again_does_not_prolong_it(leases: Leases[str]) -> None:
    """A Fetch that is repeated gets the same bytes again."""
    lease = granted(leases, limit=10.0)
    leases.mark_written([lease.id], NOW)
    leases.mark_written([lease.id], NOW + 9.0)
    assert leases.next_deadline() == NOW + 10.0


def test_an_extension_lets_it_end_later_but_never_past_the_longest_time(leases: Leases[str]) -> None:
    lease = granted(leases, limit=10.0)
    leases.mark_written([lease.id], NOW)
    assert leases.extend(lease.id, 30.0, LONGEST, NOW + 5.0).lease_for == 30.0
    assert leases.extend(lease.id, 1_000.0, LONGEST, NOW + 5.0).lease_for == LONGEST - 5.0


def test_an_extension_never_shortens_it(leases: Leases[str]) -> None:
    lease = granted(leases, limit=10.0)
    leases.mark_written([lease.id], NOW)
    assert leases.extend(lease.id, 1.0, LONGEST, NOW).lease_for == 10.0


def test_an_extension_of_what_ended_is_stale_and_of_what_never_was_unknown(leases: Leases[str]) -> None:
    lease = granted(leases)
    ended(leases, lease)
    assert leases.extend(lease.id, 1.0, LONGEST, NOW).status is ExtendStatus.ENDED
    assert leases.extend(b"never", 1.0, LONGEST, NOW).status is ExtendStatus.UNKNOWN


def test_a_lease_expires_once(leases: Leases[str]) -> None:
    lease = granted(leases, limit=LONGEST)
    leases.mark_written([lease.id], NOW)
    assert leases.expire(NOW + LONGEST) == [lease]
    assert leases.expire(NOW + LONGEST) == []


def test_a_settled_lease_does_not_expire(leases: Leases[str]) -> None:
    lease = granted(leases)
    leases.mark_written([lease.id], NOW)
    settle(leases, lease, Outcome.ACK)
    assert leases.next_deadline() is None


def test_parts_that_do_not_fit_are_refused_with_what_is_allowed(leases: Leases[str]) -> None:
    lease = granted(leases, 3)
    wrong = Settlement(lease.id, Outcome.ACK, parts=(Part(2, 2, Outcome.NACK),))
    for phase in (LeasePhase.HELD, LeasePhase.ENDED):
        assert lease.phase is phase
        result, no_lease, parts = leases.settle(wrong)
        assert (result.status, result.reason) == (SettleStatus.REFUSED, Reason.INVALID_PARTS)
        assert re.match(r"the part of 2 records from 2 on .* the batch has 3 records$", result.detail)
        assert (no_lease, parts, lease.outcomes) == (None, [], [])
        if lease.phase is LeasePhase.HELD:
            leases.end(lease)


def test_a_lease_that_cannot_be_settled_any_more_keeps_no_records(leases: Leases[str]) -> None:
    lease = granted(leases)
    group = ended(leases, lease)
    group.state = RedeliveryState.LEASED
    leases.group_finished(group)
    assert lease.slices == []


# Records whose lane has moved away


def lease_of_two_lanes(leases: Leases[str]) -> Lease[str]:
    """Records 0 to 2 are of lane 0, 3 and 4 of lane 1, which then moves away."""
    staying, going = lane_state(0), lane_state(1)
    lease = leases.grant("worker", [slice_of(3, state=staying), slice_of(2, state=going)], 0.0, 1.0, 1.0)
    going.phase = LanePhase.GONE
    return lease


def test_records_of_a_lane_that_moved_are_stale_and_the_others_are_settled() -> None:
    leases: Leases[str] = Leases(b"")
    lease = lease_of_two_lanes(leases)
    result, _, settled = leases.settle(Settlement(lease.id, Outcome.ACK))
    result, left = lease.drop_revoked(result, settled)
    assert result == SettleResult(lease.id, SettleStatus.STALE, (Range(3, 2),), "a lane moved to another sidecar")
    assert [(each.part.first, each.part.count) for each in left] == [(0, 3)]
    assert {lane.number for each in left for lane, _ in places_of(each.slices)} == {0}


def test_saying_it_again_gets_the_same_answer() -> None:
    leases: Leases[str] = Leases(b"")
    lease = lease_of_two_lanes(leases)
    first, _, settled = leases.settle(Settlement(lease.id, Outcome.ACK))
    first, _ = lease.drop_revoked(first, settled)
    again, _, settled = leases.settle(Settlement(lease.id, Outcome.ACK))
    assert settled == []
    assert (again.status, again.stale) == (first.status, first.stale)


def test_what_was_stale_for_another_reason_stays_named() -> None:
    leases: Leases[str] = Leases(b"")
    lease = lease_of_two_lanes(leases)
    leases.settle(Settlement(lease.id, None, parts=(Part(0, 1, Outcome.NACK),)))
    result, _, settled = leases.settle(Settlement(lease.id, Outcome.ACK))
    result, _ = lease.drop_revoked(result, settled)
    assert result.stale == (Range(0, 1), Range(3, 2))

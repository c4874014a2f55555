"""Settling records whose lane has moved away."""

from sidecar.core.state.lane import LanePhase
from sidecar.core.state.leases import Lease, Leases
from sidecar.model.records import Outcome, Part, Range, Settlement, SettleResult, SettleStatus
from tests.kit import lane_state, places_of, slice_of


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

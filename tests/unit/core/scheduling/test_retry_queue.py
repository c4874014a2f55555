"""The queue of records that wait for their next delivery."""

import gc
import weakref

from sidecar.core.scheduling.retry_queue import DueQueue
from sidecar.core.state.record_slices import RedeliveryGroup, RedeliveryState
from tests.kit import lane_state, slice_of


def group(due: float) -> RedeliveryGroup:
    return RedeliveryGroup([slice_of(1)], due)


def test_a_group_waits_until_it_is_due() -> None:
    returns = DueQueue()
    one = group(due=5.0)
    returns.put_back(one, now=0.0)
    assert not returns.due(4.9)
    assert returns.next_due() == 5.0
    assert [*returns.due(5.0)] == [one]
    assert returns.next_due() is None


def test_groups_become_due_by_their_time() -> None:
    returns = DueQueue()
    late, early = group(due=2.0), group(due=1.0)
    returns.put_back(late, now=0.0)
    returns.put_back(early, now=0.0)
    assert [*returns.due(3.0)] == [early, late]


def test_groups_of_one_time_keep_the_order_in_which_they_came() -> None:
    returns = DueQueue()
    groups = [group(due=1.0) for _ in range(5)]
    for one in groups:
        returns.put_back(one, now=0.0)
    assert [*returns.due(1.0)] == groups


def test_a_group_that_stopped_waiting_is_passed_over() -> None:
    returns = DueQueue()
    parked, late = group(due=1.0), group(due=2.0)
    returns.put_back(parked, now=0.0)
    returns.put_back(late, now=0.0)
    parked.state = RedeliveryState.ASIDE
    assert returns.next_due() == 2.0
    assert [*returns] == [late]


def test_of_groups_that_stopped_waiting_few_are_kept_until_they_would_be_due() -> None:
    returns = DueQueue()
    lanes = []
    for _ in range(10_000):
        state = lane_state()
        lanes.append(weakref.ref(state))
        parked = RedeliveryGroup([slice_of(1, state=state)], 3600.0)
        returns.put_back(parked, now=0.0)
        parked.state = RedeliveryState.ASIDE
        del state, parked
    gc.collect()
    assert sum(lane() is not None for lane in lanes) < 2_000

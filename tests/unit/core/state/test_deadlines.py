"""Deadlines: which lease expires next."""

import pytest

from sidecar.core.state.deadlines import Deadlines
from sidecar.core.state.leases import Lease
from tests.kit import slice_of


@pytest.fixture
def deadlines() -> Deadlines[Lease[str]]:
    return Deadlines()


def lease(number: int) -> Lease[str]:
    return Lease(number, b"%d" % number, "worker", [slice_of(1)], 0.0, 10.0)


def test_leases_expire_in_the_order_of_their_deadlines(deadlines: Deadlines[Lease[str]]) -> None:
    late, early, later = lease(1), lease(2), lease(3)
    deadlines.set(late, 20.0)
    deadlines.set(early, 10.0)
    deadlines.set(later, 30.0)
    assert deadlines.next() == 10.0
    assert deadlines.expire(25.0) == [early, late]
    assert deadlines.expire(25.0) == []
    assert deadlines.next() == 30.0


def test_those_with_one_deadline_expire_in_the_order_of_their_delivery(deadlines: Deadlines[Lease[str]]) -> None:
    leases = [lease(number) for number in range(3)]
    for each in leases:
        deadlines.set(each, 10.0)
    assert deadlines.expire(10.0) == leases


def test_a_deadline_can_move_to_either_side(deadlines: Deadlines[Lease[str]]) -> None:
    one, other = lease(1), lease(2)
    deadlines.set(one, 10.0)
    deadlines.set(other, 20.0)
    deadlines.set(one, 30.0)
    assert deadlines.expire(19.0) == []
    assert deadlines.next() == 20.0
    deadlines.set(one, 15.0)
    assert deadlines.next() == 15.0
    assert deadlines.expire(15.0) == [one]


def test_rows_of_settled_leases_do_not_pile_up(deadlines: Deadlines[Lease[str]]) -> None:
    held = lease(0)
    deadlines.set(held, 1e9)
    for number in range(1, 10_000):
        settled = lease(number)
        deadlines.set(settled, float(number))
        deadlines.remove(settled)
    assert len(deadlines._times) < 1_100
    assert deadlines.next() == 1e9


def test_what_is_delivered_in_one_turn_is_put_in_order_once(deadlines: Deadlines[Lease[str]]) -> None:
    leases = [lease(number) for number in range(1_000)]
    for each in leases:
        deadlines.set(each, 10.0)
    for each in leases:
        deadlines.set(each, 10.5)  # written a moment later
    assert len(deadlines._times) == 1
    assert deadlines.expire(10.5) == leases

"""How many batches are asked for."""

from random import Random

from offramp._internal.backoff import LONGEST, Backoff
from offramp._internal.credit import CreditControl


def test_workers_that_keep_up_have_the_next_batches_at_hand() -> None:
    control = CreditControl(16, patience=1.0)
    control.settled(0.1)
    control.grow(in_hand=7, waiting=1)
    assert control.credit == 16


def test_slow_workers_get_no_more_than_they_have_in_hand() -> None:
    control = CreditControl(16, patience=1.0)
    control.shrink(in_hand=8)
    assert control.credit == 8
    for _ in range(100):
        control.settled(3.0)
    assert control.credit == 8


def test_prefetching_starts_again_after_as_many_fast_batches_as_are_asked_for() -> None:
    control = CreditControl(4, patience=1.0)
    control.shrink(in_hand=2)
    for _ in range(3):
        control.settled(0.1)
    control.settled(2.0)
    for _ in range(3):
        control.settled(0.1)
    assert control.credit == 2
    control.settled(0.1)
    assert control.credit == 4


def test_nothing_is_asked_for_while_nobody_takes_batches_and_one_once_somebody_does() -> None:
    control = CreditControl(4, patience=1.0)
    control.shrink(in_hand=0)
    assert control.credit == 0
    control.grow(in_hand=0, waiting=1)
    assert control.credit == 1


def test_no_more_is_asked_for_than_the_credit_however_many_wait() -> None:
    control = CreditControl(4, patience=1.0)
    control.shrink(in_hand=4)
    control.grow(in_hand=4, waiting=9)
    assert control.credit == 4


def test_waits_for_the_sidecar_grow_with_jitter_up_to_a_limit_and_start_again() -> None:
    backoff = Backoff(Random(7))
    waits = [backoff.next() for _ in range(12)]
    assert waits[0] <= 0.05
    assert all(LONGEST / 2 <= wait <= LONGEST for wait in waits[-3:])
    assert len(set(waits)) == len(waits)
    backoff.reset()
    assert backoff.next() <= 0.05

"""The checker on the order of records."""

from dataclasses import replace

import pytest

from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.example_histories import A1, A2, broken_by, good, note, passes, short
from tests.chaos.checker.history import DeadLetter, History
from tests.e2e.load.journal import Spot, Word

ORDER = "Records come in the order that was chosen"
X, Y, Z = (Spot(0, place) for place in range(3))


def test_a_key_whose_second_record_comes_before_its_first_is_done() -> None:
    told = good()
    told.notes[0] = note(1.0, "w1", Word.TOOK, A1)
    told.notes[1] = note(1.1, "w2", Word.TOOK, A2)
    told.notes.append(note(1.15, "w2", Word.NACKED, A2))
    told.notes.sort()
    broken_by(ORDER, told)


def test_a_batch_that_is_not_in_order() -> None:
    told = good()
    told.notes[0] = note(1.0, "w1", Word.TOOK, A2, A1)
    broken_by(ORDER, told)


def test_a_lane_whose_later_record_goes_while_an_earlier_one_waits() -> None:
    broken_by(ORDER, good("lane"))


def test_a_batch_in_which_another_key_stands_between_two_that_are_swapped() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, Z, Y, X),
        note(1.1, "w1", Word.ACKED, Z, Y, X),
        order="key",
        a1="ok:1",
        b2="ok:2",
        a3="ok:3",
    )
    broken_by(ORDER, told)


def overtaken(order: str, *again: float) -> History:
    """The first record of a key is taken at 1.0 and nacked at 1.1, and the second comes in between, or after."""
    tries = [note(at, "w1", Word.TOOK, X, attempt=2 + number) for number, at in enumerate(again)]
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w1", Word.NACKED, X),
        *tries,
        *(note(one.at + 0.1, "w1", Word.NACKED, X) for one in tries),
        note(1.05 if again else 1.2, "w2", Word.TOOK, Y),
        note(1.3, "w2", Word.ACKED, Y),
        order=order,
        a1="poison:1",
        a2="ok:2",
    )
    told.snapshot.dead_letters.append(DeadLetter(X, "a", "poison:1", "poison"))
    return told


@pytest.mark.parametrize("order", ["key", "lane"])
def test_a_record_that_overtakes_one_that_is_not_given_up_yet(order: str) -> None:
    passes(overtaken(order))
    broken_by(ORDER, overtaken(order, 2.0))


def test_a_record_that_goes_between_two_tries_of_one_that_ends_dead() -> None:
    told = overtaken("key", 2.0)
    told.notes = [one for one in told.notes if one.writer == "w1"]
    told.notes += [note(1.5, "w2", Word.TOOK, Y), note(1.6, "w2", Word.ACKED, Y)]
    told.notes.sort()
    broken_by(ORDER, told)


def replayed(*places: Spot) -> History:
    """Both records of a key are done; then the sidecar is killed, and they come again one after the other."""
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w1", Word.ACKED, X),
        note(1.2, "w1", Word.TOOK, Y),
        note(1.3, "w1", Word.ACKED, Y),
        *(note(5.0 + number, "w2", Word.TOOK, place, flagged=True) for number, place in enumerate(places)),
        *(note(5.5 + number, "w2", Word.ACKED, place) for number, place in enumerate(places)),
        order="key",
        a1="ok:1",
        a2="ok:2",
    )
    return replace(told, disturbances=[Disturbance(2.0, 4.0, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")])


def test_records_that_come_again_out_of_order() -> None:
    passes(replayed(X, Y))
    broken_by(ORDER, replayed(Y, X))


def test_records_that_come_again_at_the_same_time_in_two_hands() -> None:
    told = replayed(X, Y)
    told.notes[4] = note(5.0, "w3", Word.TOOK, X, flagged=True)
    told.notes[5] = note(6.2, "w3", Word.ACKED, X)
    told.notes.sort()
    broken_by(ORDER, told)


def test_a_worker_that_nacks_one_and_acks_a_later_one_of_the_same_batch_has_chosen_so() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X, Y),
        note(1.1, "w1", Word.NACKED, X),
        note(1.2, "w1", Word.ACKED, Y),
        note(2.0, "w1", Word.TOOK, X, attempt=2),
        note(2.1, "w1", Word.ACKED, X),
        order="key",
        a1="flaky:1",
        a2="ok:2",
    )
    passes(told)

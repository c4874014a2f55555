"""The checker on records that come again: those without a reason, and those that do not say what they are."""

from dataclasses import replace

import pytest

from tests.chaos.checker.checker import check
from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.example_histories import A1, B3, LATER, broken_by, good, note, passes, short
from tests.chaos.checker.history import RETRY, TOPIC, Commit, DeadLetter, History, ParkedRecord, Stored
from tests.e2e.load.journal import Spot, Word

NO_REASON = "A record comes again only where something made it"
UNFLAGGED = "A record that comes again after an ack, or after an unknown outcome, says so"
OVERFLAGGED = "A record that nobody can have had before does not say that somebody may have"
MISCOUNTED = "An attempt is counted once, and only if there was one"
X, Y = Spot(0, 0), Spot(0, 1)


def settled_and_again(*disturbances: Disturbance, broker: str = "local", variant: str = "") -> History:
    """A record that the sidecar said to count, at 1.2, and that comes again at 5.0."""
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w1", Word.ACKED, X),
        note(1.2, "w1", Word.SETTLED, X),
        note(5.0, "w2", Word.TOOK, X, flagged=True),
        note(5.1, "w2", Word.ACKED, X),
        a1="ok:1",
    )
    return replace(told, disturbances=[*disturbances], broker=broker, variant=variant)


def test_a_record_that_was_settled_and_comes_again_without_a_reason() -> None:
    broken_by(NO_REASON, settled_and_again())


@pytest.mark.parametrize(
    "kind",
    [
        DisturbanceKind.WORKER_ENDED,
        DisturbanceKind.APP_CUT,
        DisturbanceKind.DISK,
        DisturbanceKind.CLOCK,
        DisturbanceKind.SIDECAR_FROZEN,
    ],
)
def test_nothing_but_the_end_of_its_sidecar_brings_a_settled_record_of_the_embedded_broker_again(
    kind: DisturbanceKind,
) -> None:
    broken_by(NO_REASON, settled_and_again(Disturbance(3.0, 4.0, kind, "w1")))
    passes(settled_and_again(Disturbance(3.0, 4.0, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")))


@pytest.mark.parametrize("broker", ["kafka", "pulsar"])
@pytest.mark.parametrize(
    "kind",
    [
        DisturbanceKind.SIDECAR_DOWN,
        DisturbanceKind.SIDECAR_JOINED,
        DisturbanceKind.SIDECAR_FROZEN,
        DisturbanceKind.BROKER,
    ],
)
def test_a_lane_that_may_have_moved_is_a_reason(broker: str, kind: DisturbanceKind) -> None:
    passes(settled_and_again(Disturbance(3.0, 4.0, kind), broker=broker))


@pytest.mark.parametrize("broker", ["kafka", "pulsar"])
def test_what_was_over_long_before_is_no_reason(broker: str) -> None:
    broken_by(NO_REASON, settled_and_again(Disturbance(-40.0, -30.0, DisturbanceKind.BROKER), broker=broker))


def test_a_record_in_two_hands_at_once_without_a_reason() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w2", Word.TOOK, X, flagged=True),
        note(1.2, "w1", Word.ACKED, X),
        note(1.3, "w2", Word.ACKED, X),
        order="lane",
        a1="ok:1",
    )
    broken_by(NO_REASON, told)
    broken_by(NO_REASON, replace(told, disturbances=[Disturbance(1.05, 1.06, DisturbanceKind.WORKER_ENDED, "w3")]))
    passes(replace(told, disturbances=[Disturbance(1.05, 1.06, DisturbanceKind.WORKER_ENDED, "w1")]))
    passes(replace(told, disturbances=[Disturbance(1.05, 1.06, DisturbanceKind.APP_CUT)]))


def test_a_record_whose_lease_ended_may_come_to_another() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(2.6, "w2", Word.TOOK, X, attempt=2, flagged=True),
        note(2.7, "w2", Word.ACKED, X),
        note(3.0, "w1", Word.ACKED, X),
        a1="overdue:1",
    )
    broken_by(NO_REASON, told)
    passes(replace(told, lease=1.5))
    broken_by(NO_REASON, replace(told, lease=4.0))
    # It may have had it for long before it could write that down.
    passes(replace(told, lease=4.0, disturbances=[Disturbance(0.1, 0.9, DisturbanceKind.WORKER_FROZEN, "w1")]))


def test_a_worker_that_gets_again_what_it_had_too_long_may_hear_that_its_second_ack_counts() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X, lease="1"),
        note(1.1, "w1", Word.ACKED, X, lease="1"),
        note(3.0, "w1", Word.TOOK, X, flagged=True, lease="2"),
        note(3.1, "w1", Word.ACKED, X, lease="2"),
        note(3.2, "w1", Word.SETTLED, X, lease="2"),
        a1="ok:1",
    )
    passes(replace(told, lease=1.5))


@pytest.mark.parametrize("word", [Word.ACKED, Word.REJECTED])
def test_a_worker_that_gets_again_what_it_still_has_may_be_done_with_the_second_one_first(word: Word) -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X, lease="1"),
        note(2.6, "w1", Word.TOOK, X, flagged=True, lease="2"),
        note(2.7, "w1", word, X, lease="2"),
        note(2.8, "w1", Word.TOOK, Y),
        note(2.9, "w1", Word.ACKED, Y),
        note(3.0, "w1", word, X, lease="1"),
        order="lane",
        a1="ok:1" if word is Word.ACKED else "bad:1",
        a2="ok:2",
    )
    if word is Word.ACKED:
        told.notes.append(note(3.1, "w1", Word.SETTLED, X, lease="2"))
    else:
        told.snapshot.dead_letters.append(DeadLetter(X, "a", "bad:1", "REJECTED: no"))
    passes(replace(told, lease=1.5))


def test_what_a_frozen_worker_took_of_a_sidecar_that_ended_meanwhile_comes_again() -> None:
    told = short(
        note(5.0, "w1", Word.TOOK, X),
        note(5.1, "w1", Word.ACKED, X),
        note(5.4, "w1", Word.TOOK, X, flagged=True),
        note(5.5, "w1", Word.ACKED, X),
        a1="ok:1",
    )
    down = Disturbance(3.0, 3.5, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")
    broken_by(NO_REASON, replace(told, disturbances=[down]))
    broken_by(NO_REASON, replace(told, disturbances=[Disturbance(2.0, 4.9, DisturbanceKind.WORKER_FROZEN, "w2"), down]))
    broken_by(NO_REASON, replace(told, disturbances=[Disturbance(4.2, 4.9, DisturbanceKind.WORKER_FROZEN, "w1"), down]))
    passes(replace(told, disturbances=[Disturbance(2.0, 4.9, DisturbanceKind.WORKER_FROZEN, "w1"), down]))


def test_a_copy_in_the_retry_topic_comes_when_it_is_due_however_long_ago_the_sidecar_was_killed() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w1", Word.NACKED, X),
        # The sidecar ends between parking it and the commit.
        note(4.0, "w1", Word.TOOK, X, flagged=True),
        note(4.1, "w1", Word.ACKED, X),
        note(4.2, "w1", Word.SETTLED, X),
        note(9.0, "w1", Word.TOOK, X, attempt=2, flagged=True),
        note(9.1, "w1", Word.ACKED, X),
        a1="later:1",
    )
    told.snapshot.parked.append(ParkedRecord(Spot(3, 0), X))
    told.snapshot.commits.append(Commit(10.0, RETRY, 3, ((0, 1),)))
    passes(replace(told, disturbances=[Disturbance(1.2, 2.0, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")]))
    assert NO_REASON in check(told).problems


def test_what_a_frozen_worker_had_before_another_one_acked_it_does_not_say_so() -> None:
    told = short(
        note(1.0, "w2", Word.TOOK, Y),
        note(1.1, "w2", Word.ACKED, Y),
        note(3.0, "w2", Word.TOOK, X, flagged=True),
        note(3.1, "w2", Word.ACKED, X),
        note(5.0, "w1", Word.TOOK, X),
        note(5.1, "w1", Word.ACKED, X),
        a1="ok:1",
        a2="ok:2",
    )
    told = replace(told, lease=1.5)
    frozen = Disturbance(1.0, 4.9, DisturbanceKind.WORKER_FROZEN, "w1")
    broken_by(UNFLAGGED, told)
    broken_by(UNFLAGGED, replace(told, disturbances=[frozen._replace(at=3.5)]))
    passes(replace(told, disturbances=[frozen]))
    told.notes.append(note(3.2, "w2", Word.SETTLED, X))
    told.notes.sort()
    assert NO_REASON in check(told).problems
    passes(replace(told, disturbances=[frozen]))


@pytest.mark.parametrize(("broker", "excused"), [("kafka", True), ("pulsar", True), ("local", False)])
def test_a_sidecar_that_wakes_does_not_know_what_others_did_with_its_lanes(broker: str, excused: bool) -> None:
    told = settled_and_again(Disturbance(1.05, 4.8, DisturbanceKind.SIDECAR_FROZEN, "sidecar 0"), broker=broker)
    told.notes[3] = note(5.0, "w2", Word.TOOK, X)
    late = replace(told, disturbances=[Disturbance(1.05, 3.9, DisturbanceKind.SIDECAR_FROZEN, "sidecar 0")])
    assert (UNFLAGGED in check(told).problems) is not excused
    assert UNFLAGGED in check(late).problems


def test_a_record_that_comes_again_after_its_ack_and_does_not_say_so() -> None:
    told = good("none")
    told.disturbances.append(Disturbance(3.5, 3.6, DisturbanceKind.SIDECAR_DOWN, "sidecar 0"))
    told.notes.append(note(4.0, "w1", Word.TOOK, A1))
    told.notes.append(note(4.1, "w1", Word.ACKED, A1))
    broken_by(UNFLAGGED, told)


def test_a_record_of_a_killed_worker_that_does_not_say_so() -> None:
    told = good()
    told.notes[7] = note(2.2, "w1", Word.TOOK, B3, attempt=2)
    broken_by(UNFLAGGED, told)


def test_a_record_that_comes_to_the_same_worker_after_the_sidecar_was_killed_and_does_not_say_so() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(2.0, "w1", Word.TOOK, X),
        note(2.1, "w1", Word.ACKED, X),
        a1="ok:1",
    )
    broken_by(UNFLAGGED, replace(told, disturbances=[Disturbance(1.2, 1.6, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")]))


def flagged_first(*disturbances: Disturbance, broker: str = "local", variant: str = "") -> History:
    told = short(note(5.0, "w1", Word.TOOK, X, flagged=True), note(5.1, "w1", Word.ACKED, X), a1="ok:1")
    return replace(told, disturbances=[*disturbances], broker=broker, variant=variant)


def test_a_first_delivery_of_a_new_group_that_says_that_somebody_had_it() -> None:
    broken_by(OVERFLAGGED, flagged_first())
    broken_by(OVERFLAGGED, flagged_first(broker="pulsar", variant="exclusive"))


@pytest.mark.parametrize("kind", [DisturbanceKind.SIDECAR_DOWN, DisturbanceKind.WORKER_ENDED, DisturbanceKind.APP_CUT])
def test_after_a_restart_or_a_lost_session_a_first_delivery_may_say_so(kind: DisturbanceKind) -> None:
    passes(flagged_first(Disturbance(3.0, 4.0, kind)))


def test_no_lease_can_have_ended_when_the_first_batch_comes() -> None:
    broken_by(OVERFLAGGED, replace(flagged_first(), lease=1.5))
    told = flagged_first()
    told.notes.insert(0, note(1.0, "w1", Word.TOOK, Spot(0, 1)))
    told.notes.insert(1, note(1.1, "w1", Word.ACKED, Spot(0, 1)))
    told.snapshot.records[Spot(0, 1)] = Stored("b", "ok:2")
    told.snapshot.commits[0] = Commit(99.0, TOPIC, 0, ((0, 2),))
    passes(replace(told, lease=1.5))
    broken_by(OVERFLAGGED, replace(told, lease=60.0))


def test_what_several_sidecars_may_get_from_pulsar_always_says_so() -> None:
    passes(flagged_first(broker="pulsar", variant="shared"))


def test_a_nacked_record_that_says_that_its_outcome_is_not_known() -> None:
    told = good()
    told.disturbances.clear()
    told.notes = [one for one in told.notes if not (one.writer == "w2" or one.at in (2.2, 2.3))]
    told.notes += [note(2.2, "w1", Word.TOOK, B3), note(2.3, "w1", Word.ACKED, B3)]
    told.notes.sort()
    passes(told)
    told.notes[4] = note(2.0, "w1", Word.TOOK, Spot(0, 1), attempt=2, flagged=True)
    broken_by(OVERFLAGGED, told)


def test_an_attempt_that_never_was() -> None:
    told = short(note(1.0, "w1", Word.TOOK, X, attempt=3), note(1.1, "w1", Word.ACKED, X), a1="ok:1")
    broken_by(MISCOUNTED, told)
    # In the hands of workers that ended before they could write it down.
    passes(
        replace(
            told,
            disturbances=[
                Disturbance(0.1, 0.2, DisturbanceKind.WORKER_ENDED, "w8"),
                Disturbance(0.3, 0.4, DisturbanceKind.WORKER_ENDED, "w9"),
            ],
        )
    )


def test_a_nack_that_is_not_counted() -> None:
    told = good()
    told.notes[13] = note(3.0, "w1", Word.TOOK, LATER, attempt=1, flagged=True)
    broken_by(MISCOUNTED, told)


def test_a_restart_may_forget_attempts() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(1.1, "w1", Word.NACKED, X),
        note(2.0, "w1", Word.TOOK, X, flagged=True),
        note(2.1, "w1", Word.NACKED, X),
        note(2.2, "w1", Word.TOOK, X, attempt=2, flagged=True),
        note(2.3, "w1", Word.ACKED, X),
        a1="flaky:1",
    )
    passes(replace(told, disturbances=[Disturbance(1.2, 1.6, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")]))

"""The checker finds problems: a history that keeps every promise passes, and each that breaks one fails."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.checker import checker, history
from tests.chaos.checker.checker import check
from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.example_histories import A1, B3, BAD, broken_by, good, note, passes, short
from tests.chaos.checker.history import (
    RETRY,
    TOPIC,
    BrokerSnapshot,
    Commit,
    DeadLetter,
    History,
    Owner,
    ParkedRecord,
    ProcessRun,
    Stored,
)
from tests.chaos.checker.rules import RULES
from tests.chaos.event_log import EventLog
from tests.e2e.load.journal import Journal, Spot, Word, digest_of


@pytest.mark.parametrize("order", ["none", "key", "lane"])
def test_a_history_that_keeps_every_promise_passes(order: str) -> None:
    told = good(order)
    if order == "lane":
        # What comes before must be done: the nacked one waits for nobody, but all wait for it.
        told.notes = [one for one in told.notes if one.at not in (1.4, 2.2)]
        told.notes.append(note(2.25, "w1", Word.TOOK, B3))
        told.notes.sort()
    assert check(told).passed, [*check(told).lines()]


def test_what_was_confirmed_and_is_not_there() -> None:
    told = good()
    told.published = {**told.published, Spot(0, 9): "ok:9"}
    broken_by("What was confirmed to a publisher is in the broker", told)


def test_what_is_there_with_another_value() -> None:
    told = good()
    told.published = {**told.published, A1: "ok:7"}
    broken_by("What was confirmed to a publisher is in the broker", told)


def test_a_round_in_which_nothing_happened() -> None:
    broken_by("There was something to judge", History("none", {}, [], BrokerSnapshot()))


def test_a_value_that_is_swapped_on_its_way_to_a_worker() -> None:
    told = good()
    mine = told.notes[0].entries
    right = (mine[0]._replace(digest=digest_of(b"a", b"ok:1")), mine[1]._replace(digest=digest_of(b"a", b"flaky:2")))
    told.notes[0] = told.notes[0]._replace(entries=right)
    passes(told)
    wrong = (mine[0]._replace(digest=right[1].digest), mine[1]._replace(digest=right[0].digest))
    told.notes[0] = told.notes[0]._replace(entries=wrong)
    broken_by("A worker gets what is in the broker", told)


def test_a_record_that_a_worker_got_and_that_is_nowhere() -> None:
    told = good()
    told.notes += [note(4.0, "w1", Word.TOOK, Spot(7, 7)), note(4.1, "w1", Word.ACKED, Spot(7, 7))]
    broken_by("A worker gets what is in the broker", told)


@pytest.mark.parametrize("word", [Word.ACKED, Word.REJECTED, Word.NACKED, Word.SETTLED])
def test_a_word_about_a_record_that_the_worker_does_not_have(word: Word) -> None:
    told = good()
    told.notes.append(note(4.0, "w1", word, BAD))
    broken_by("Nobody says anything of what was not taken, or settled what was not acked", told)


def test_a_commit_that_replaces_a_later_one() -> None:
    told = good()
    told.snapshot.commits.insert(3, Commit(2.95, TOPIC, 0, ((0, 3), (4, 5))))
    told.snapshot.commits.append(Commit(3.3, TOPIC, 0, ((0, 5),)))
    broken_by("No commit goes back behind an earlier one", told)


def at_two_sidecars(**worker: str) -> History:
    """The lane goes from sidecar 0 to sidecar 1 at 1.15, between a delivery and its ack. `worker`: of which sidecar."""
    told = good()
    told.broker, told.variant = "kafka", "consumer"
    told.processes += [ProcessRun(f"worker threads of {whose}", 20, name, 0, True) for name, whose in worker.items()]
    told.snapshot.owners = [Owner(0.5, 0, ("sidecar 0",)), Owner(1.12, 0, ()), Owner(1.15, 0, ("sidecar 1",))]
    return told


def test_an_ack_that_counts_at_a_sidecar_whose_lane_is_at_another() -> None:
    passes(at_two_sidecars(w1="sidecar 1"))
    told = at_two_sidecars(w1="sidecar 0")
    broken_by("A lane is at one sidecar at a time, and acks count only there", told)
    # Until somebody else has it, they may.
    told.snapshot.owners.pop()
    passes(told)


@pytest.mark.parametrize("kind", [DisturbanceKind.SIDECAR_FROZEN, DisturbanceKind.BROKER])
def test_a_sidecar_that_was_out_of_touch_may_count_acks_of_a_lane_that_it_has_lost(kind: DisturbanceKind) -> None:
    told = at_two_sidecars(w1="sidecar 0")
    told.disturbances = sorted([*told.disturbances, Disturbance(0.6, 1.18, kind)])
    passes(told)


def test_an_ack_of_a_parked_record_counts_where_the_lane_of_the_retry_topic_is() -> None:
    told = at_two_sidecars(w1="sidecar 0")
    told.snapshot.owners = [Owner(0.5, 0, ("sidecar 0",)), Owner(2.8, 0, ("sidecar 1",))]
    passes(told)


def test_a_lane_that_two_sidecars_have() -> None:
    told = at_two_sidecars(w1="sidecar 1")
    told.snapshot.owners.append(Owner(5.0, 0, ("sidecar 0", "sidecar 1")))
    broken_by("A lane is at one sidecar at a time, and acks count only there", told)


def test_a_record_that_nobody_finished() -> None:
    told = good("none")
    told.snapshot.records[Spot(1, 0)] = Stored("a", "ok:8")
    told.snapshot.commits.append(Commit(9.0, TOPIC, 1, ()))
    assert {"Nothing is lost", "What the sidecars counted is committed in the end"} == set(check(told).problems)


def test_a_record_that_was_taken_and_never_came_again() -> None:
    told = good("none")
    told.notes = [one for one in told.notes if one.at not in (2.2, 2.3)]
    assert {"Nothing is lost", "Nothing was committed that was not settled"} == set(check(told).problems)


def test_a_commit_before_the_ack() -> None:
    told = good()
    told.snapshot.commits[0] = Commit(1.15, TOPIC, 0, ((0, 1),))
    broken_by("Nothing was committed that was not settled", told)


def test_a_run_beyond_the_position_before_its_ack() -> None:
    told = good()
    told.snapshot.commits.insert(1, Commit(1.5, TOPIC, 0, ((0, 1), (2, 3))))
    broken_by("Nothing was committed that was not settled", told)


def test_a_reject_that_is_committed_before_it_was_said() -> None:
    told = good()
    told.snapshot.commits.insert(2, Commit(2.45, TOPIC, 0, ((0, 4),)))
    broken_by("Nothing was committed that was not settled", told)


def test_a_stay_in_the_retry_topic_that_is_committed_before_the_ack() -> None:
    told = good()
    told.snapshot.commits[3] = Commit(3.05, RETRY, 3, ((0, 1),))
    broken_by("Nothing was committed that was not settled", told)


POISON = DeadLetter(Spot(0, 0), "a", "poison:1", "poison")
X = Spot(0, 0)
DELIVERED = (note(5.0, "w1", Word.TOOK, X), note(5.1, "w1", Word.NACKED, X))


def test_a_record_that_is_committed_before_it_failed_though_it_ends_dead() -> None:
    told = short(*DELIVERED, a1="poison:1")
    told.snapshot.dead_letters.append(POISON)
    passes(told)
    told.snapshot.commits.insert(0, Commit(0.5, TOPIC, 0, ((0, 1),)))
    broken_by("Nothing was committed that was not settled", told)


def test_a_record_that_is_committed_before_it_was_ever_delivered_though_it_is_parked_later() -> None:
    told = good()
    told.snapshot.commits.insert(0, Commit(0.5, TOPIC, 0, ((4, 5),)))
    broken_by("Nothing was committed that was not settled", told)


def parked_twice(early: Commit) -> History:
    told = short(
        *(note(1.0, "w1", Word.TOOK, X), note(1.1, "w1", Word.NACKED, X)),
        *(note(3.0, "w1", Word.TOOK, X, attempt=2, flagged=True), note(3.1, "w1", Word.NACKED, X)),
        *(note(5.0, "w1", Word.TOOK, X, attempt=3, flagged=True), note(5.1, "w1", Word.ACKED, X)),
        a1="later:1",
    )
    told.snapshot.parked = [ParkedRecord(Spot(3, 0), X), ParkedRecord(Spot(3, 1), X)]
    told.snapshot.commits = [early, *told.snapshot.commits, Commit(6.0, RETRY, 3, ((0, 2),))]
    return told


def test_the_first_of_two_stays_that_is_committed_before_the_record_came_from_it() -> None:
    passes(parked_twice(Commit(3.5, RETRY, 3, ((0, 1),))))
    broken_by("Nothing was committed that was not settled", parked_twice(Commit(2.5, RETRY, 3, ((0, 1),))))
    broken_by("Nothing was committed that was not settled", parked_twice(Commit(4.5, RETRY, 3, ((0, 2),))))


def test_one_that_was_parked_because_its_worker_died_before_it_looked_at_it() -> None:
    told = short(
        note(5.0, "w1", Word.TOOK, X, attempt=2, flagged=True),
        note(5.1, "w1", Word.ACKED, X),
        a1="ok:1",
    )
    told.snapshot.parked = [ParkedRecord(Spot(3, 0), X)]
    told.snapshot.commits.append(Commit(6.0, RETRY, 3, ((0, 1),)))
    assert "Nothing was committed that was not settled" in check(told).problems
    passes(replace(told, disturbances=[Disturbance(1.0, 1.1, DisturbanceKind.WORKER_ENDED, "w2")]))


def test_a_stay_in_the_retry_topic_that_is_never_committed() -> None:
    told = good()
    del told.snapshot.commits[3]
    broken_by("What the sidecars counted is committed in the end", told)


def test_a_position_that_stays_behind() -> None:
    told = good()
    del told.snapshot.commits[2]
    broken_by("What the sidecars counted is committed in the end", told)


def dead_letters(*found: DeadLetter) -> Callable[[History], None]:
    def put(told: History) -> None:
        told.snapshot.dead_letters = [*found]

    return put


@pytest.mark.parametrize(
    "change",
    [
        dead_letters(DeadLetter(BAD, "b", "bad:9", "REJECTED: no")),
        dead_letters(DeadLetter(BAD, None, "bad:4", "REJECTED: no")),
        dead_letters(DeadLetter(BAD, "b", "bad:4", "WORKER_DIED")),
        dead_letters(DeadLetter(BAD, "b", "bad:4", "REJECTED: no"), DeadLetter(A1, "a", "ok:1", "EXHAUSTED")),
        dead_letters(DeadLetter(BAD, "b", "bad:4", "REJECTED: no"), DeadLetter(A1, "a", "ok:1", "WORKER_DIED")),
        dead_letters(DeadLetter(BAD, "b", "bad:4", "REJECTED: no"), DeadLetter(Spot(7, 7), "a", "ok:1", "REJECTED")),
    ],
    ids=["another value", "no key", "another reason", "an innocent", "blamed too soon", "of nothing"],
)
def test_dead_letters_that_are_not_right(change: Callable[[History], None]) -> None:
    told = good("none")
    change(told)
    broken_by("Dead letters are complete, whole, and only for those that are to be", told)


def test_a_dead_letter_that_is_missing() -> None:
    told = good("none")
    told.snapshot.dead_letters = []
    found = check(told).problems
    assert "Dead letters are complete, whole, and only for those that are to be" in found
    assert "Nothing is lost" in found


def test_a_record_that_three_workers_died_with_may_be_blamed_for_it() -> None:
    told = good("none")
    del told.notes[8]
    told.snapshot.dead_letters.append(DeadLetter(B3, "b", "ok:3", "WORKER_DIED"))
    assert "Dead letters are complete, whole, and only for those that are to be" in check(told).problems
    told.notes.append(note(2.26, "w3", Word.TOOK, B3, attempt=3, flagged=True))
    told.disturbances += [
        Disturbance(2.24, 2.25, DisturbanceKind.WORKER_ENDED, "w1"),
        Disturbance(2.27, 2.28, DisturbanceKind.WORKER_ENDED, "w3"),
    ]
    told.notes.sort()
    passes(told)


def test_a_dead_letter_of_a_record_that_nobody_took() -> None:
    told = short(a1="bad:1")
    told.snapshot.dead_letters.append(DeadLetter(X, "a", "bad:1", "REJECTED: no"))
    assert "Dead letters are complete, whole, and only for those that are to be" in check(told).problems


def test_a_record_that_is_blamed_though_no_worker_died() -> None:
    told = short(
        note(1.0, "w1", Word.TOOK, X),
        note(2.0, "w1", Word.TOOK, X, flagged=True),
        note(3.0, "w1", Word.TOOK, X, flagged=True),
        a1="ok:1",
    )
    told.snapshot.dead_letters.append(DeadLetter(X, "a", "ok:1", "WORKER_DIED"))
    told.disturbances = [
        Disturbance(1.0 + number, 1.5 + number, DisturbanceKind.SIDECAR_DOWN, "sidecar 0") for number in range(3)
    ]
    found = check(told).problems
    assert "Dead letters are complete, whole, and only for those that are to be" in found


@pytest.mark.parametrize(
    "process",
    [
        ProcessRun("sidecar 1", 12, "", 1, False),
        ProcessRun("sidecar 1", 12, "", 0, False),
        ProcessRun("sidecar 1", 12, "", None, True),
        ProcessRun("worker", 12, "w1", -signal.SIGSEGV, True),
        ProcessRun("worker", 12, "w1", 1, True),
    ],
    ids=["fails", "ends", "hangs", "crashes when told to stop", "fails when told to stop"],
)
def test_a_process_that_ends_by_itself_or_never(process: ProcessRun) -> None:
    told = good()
    told.processes.append(process)
    broken_by("No process ends by itself, and none says that something went wrong", told)


def test_a_complaint_of_the_harness() -> None:
    broken_by(
        "No process ends by itself, and none says that something went wrong", replace(good(), complaints=["it hung"])
    )


def test_a_dead_letter_that_was_written_twice_is_counted_and_allowed() -> None:
    told = good()
    told.snapshot.dead_letters *= 2
    verdict = check(told)
    assert verdict.passed
    assert verdict.counts["dead letters written twice"] == 1


def test_every_rule_has_a_history_that_breaks_it() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_checker*.py"))
    for rule in RULES:
        assert f'"{(rule.__doc__ or "").rstrip(".")}"' in text, rule


def test_no_module_that_judges_uses_the_sidecar() -> None:
    for path in Path(checker.__file__).parents[1].rglob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(("import sidecar", "from sidecar"))], path


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    told = good()
    plan = {"order": "key", "broker": "pulsar", "variant": "shared", "leases": {"seconds": 1.5, "asked": True}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "broker.json").write_text(told.snapshot.to_json())
    (tmp_path / "published-0").write_text('[0, 0, "ok:1"]\n[0, 1, "half')
    journal = Journal(tmp_path / "journal-1")
    journal.note(Word.TOOK, b"lease", [(0, 0, 1, False), (0, 1, 2, True, "f00")])
    journal.note(Word.ACKED, b"lease", [(0, 0, 1, False)])
    event_log = EventLog(tmp_path / "events")
    event_log.note("started", "sidecar 0", 10)
    event_log.note("started", "worker", 11, journal="journal-1")
    event_log.note("killed", "worker", 11)
    event_log.note("ended", "worker", 11, code=-9)
    event_log.note("ended", "sidecar 0", 10, code=1)
    event_log.complain("it hung")
    event_log.close()
    read = history.read(tmp_path)
    assert read.published == {A1: "ok:1"}
    assert read.snapshot == told.snapshot
    assert [(one.writer, one.word, len(one.entries)) for one in read.notes] == [
        ("journal-1", Word.TOOK, 2),
        ("journal-1", Word.ACKED, 1),
    ]
    assert [(one.possibly_processed, one.digest) for one in read.notes[0].entries] == [(False, ""), (True, "f00")]
    assert read.processes == [
        ProcessRun("sidecar 0", 10, "", 1, False),
        ProcessRun("worker", 11, "journal-1", -9, True),
    ]
    assert read.complaints == ["it hung"]
    assert (read.broker, read.variant, read.lease) == ("pulsar", "shared", 1.5)
    assert [(one.kind, one.whom) for one in read.disturbances if one.kind is DisturbanceKind.SIDECAR_DOWN] == [
        (DisturbanceKind.SIDECAR_DOWN, "sidecar 0")
    ]
    assert {one.whom for one in read.disturbances if one.kind is DisturbanceKind.WORKER_ENDED} == {"journal-1"}

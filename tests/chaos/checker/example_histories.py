"""Histories for the tests of the checker: one that keeps every promise, to be broken by each of them."""

from tests.chaos.checker.checker import check
from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.history import (
    RETRY,
    TOPIC,
    BrokerSnapshot,
    Commit,
    DeadLetter,
    History,
    Note,
    ParkedRecord,
    ProcessRun,
    Stored,
)
from tests.e2e.load.journal import Entry, Spot, Word

A1, A2, B3, BAD, LATER = (Spot(0, position) for position in range(5))
VALUES = {A1: "ok:1", A2: "flaky:2", B3: "ok:3", BAD: "bad:4", LATER: "later:5"}
KEYS = {A1: "a", A2: "a", B3: "b", BAD: "b", LATER: "c"}


def note(
    at: float, writer: str, word: Word, *spots: Spot, attempt: int = 1, flagged: bool = False, lease: str = ""
) -> Note:
    return Note(at, writer, word, tuple(Entry(at, word, spot, attempt, flagged, lease=lease) for spot in spots))


def good(order: str = "key") -> History:
    """Two workers, a nack, a reject, a record that was parked, and a worker that was killed with one in its hands."""
    notes = [
        note(1.0, "w1", Word.TOOK, A1, A2),
        note(1.1, "w1", Word.NACKED, A2),
        note(1.2, "w1", Word.ACKED, A1),
        note(1.3, "w1", Word.SETTLED, A1),
        note(1.4, "w2", Word.TOOK, B3),
        # Here w2 is killed.
        note(2.0, "w1", Word.TOOK, A2, attempt=2),
        note(2.1, "w1", Word.ACKED, A2),
        note(2.2, "w1", Word.TOOK, B3, attempt=2, flagged=True),
        note(2.3, "w1", Word.ACKED, B3),
        note(2.4, "w1", Word.TOOK, BAD),
        note(2.5, "w1", Word.REJECTED, BAD),
        note(2.6, "w1", Word.TOOK, LATER),
        note(2.7, "w1", Word.NACKED, LATER),
        note(3.0, "w1", Word.TOOK, LATER, attempt=2, flagged=True),
        note(3.1, "w1", Word.ACKED, LATER),
    ]
    snapshot = BrokerSnapshot(
        records={spot: Stored(KEYS[spot], value) for spot, value in VALUES.items()},
        dead_letters=[DeadLetter(BAD, "b", "bad:4", "REJECTED: no")],
        parked=[ParkedRecord(Spot(3, 0), LATER)],
        commits=[
            Commit(1.25, TOPIC, 0, ((0, 1),)),
            Commit(2.35, TOPIC, 0, ((0, 3),)),
            Commit(2.9, TOPIC, 0, ((0, 5),)),
            Commit(3.2, RETRY, 3, ((0, 1),)),
        ],
    )
    processes = [ProcessRun("sidecar 0", 10, "", 0, True), ProcessRun("worker", 11, "w2", -9, True)]
    disturbances = [Disturbance(1.5, 1.6, DisturbanceKind.WORKER_ENDED, "w2")]
    return History(order, dict(VALUES), notes, snapshot, processes, disturbances=disturbances)


def broken_by(rule: str, history: History) -> None:
    """This rule is broken, and no other."""
    found = check(history).problems
    assert [*found] == [rule], found


def passes(history: History) -> None:
    assert check(history).passed, [*check(history).lines()]


def short(*notes: Note, order: str = "none", **values: str) -> History:
    """A history of records of key `a` in lane 0, one after the other, which are all committed in the end."""
    records = {Spot(0, place): Stored(name[0], value) for place, (name, value) in enumerate(values.items())}
    snapshot = BrokerSnapshot(records=records, commits=[Commit(99.0, TOPIC, 0, ((0, len(records)),))])
    return History(order, {spot: stored.value for spot, stored in records.items()}, sorted(notes), snapshot)

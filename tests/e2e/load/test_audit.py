"""The audit of the load tests is right also while the journals grow."""

from pathlib import Path

from tests.e2e.load.audit import BrokerSnapshot, JournalAudit, Stored
from tests.e2e.load.journal import Journal, Spot, Word


def test_the_clock_says_what_came_first_and_not_the_order_of_reading(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    first, second = Journal(one), Journal(other)
    tracker = JournalAudit()
    first.note(Word.TOOK, b"lease", [(0, 0, 1, False)])
    tracker.read([one])
    first.note(Word.ACKED, b"lease", [(0, 0, 1, False)])
    second.note(Word.TOOK, b"lease", [(0, 1, 1, False)])
    # The ack is older than what was read here, and is read after it.
    tracker.read([other])
    tracker.read([one, other])
    snapshot = BrokerSnapshot(records={Spot(0, 0): Stored(b"key", b"ok"), Spot(0, 1): Stored(b"key", b"ok")})
    assert tracker.out_of_order(snapshot) == []
    assert (tracker.deliveries, tracker.repeats, tracker.surprises) == (2, 0, [])


def test_an_overtaken_key_and_an_unflagged_repeat_are_found(tmp_path: Path) -> None:
    journal, tracker = Journal(tmp_path / "one"), JournalAudit()
    journal.note(Word.TOOK, b"lease", [(0, 1, 1, False)])
    journal.note(Word.ACKED, b"lease", [(0, 1, 1, False)])
    journal.note(Word.TOOK, b"lease", [(0, 1, 1, False)])
    tracker.read([tmp_path / "one"])
    snapshot = BrokerSnapshot(records={Spot(0, 0): Stored(b"key", b"ok"), Spot(0, 1): Stored(b"key", b"ok")})
    assert len(tracker.out_of_order(snapshot)) == 2
    assert [entry.spot for entry in tracker.surprises] == [Spot(0, 1)]

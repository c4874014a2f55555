"""What the diary says was done to whom, and for how long."""

from typing import Any

from tests.chaos.acts import Act
from tests.chaos.upsets import Trouble, Upset, upsets_of

NEVER = float("inf")


def line(at: float, word: str, who: str = "", pid: int = 0, **more: Any) -> dict[str, Any]:
    return {"at": at, "word": word, "who": who, "pid": pid, **more}


BEGIN = [
    line(0.0, "started", "sidecar 0", 10),
    line(0.1, "started", "worker stream of sidecar 0", 11, journal="journal-1"),
]


def found(*diary: dict[str, Any], last_heard: float = 0.0) -> list[Upset]:
    return upsets_of([*BEGIN, *diary], {"journal-1": last_heard})


def test_a_round_begins_without_an_upset() -> None:
    assert not found()


def test_a_sidecar_is_down_until_its_next_process_starts() -> None:
    upsets = found(
        line(1.0, "killed", "sidecar 0", 10),
        line(1.1, "ended", "sidecar 0", 10, code=-9),
        line(2.0, "started", "sidecar 0", 12),
    )
    assert upsets == [Upset(1.0, 2.0, Trouble.DOWN, "sidecar 0"), Upset(1.1, 2.0, Trouble.DOWN, "sidecar 0")]


def test_one_that_leaves_never_comes_back() -> None:
    assert found(line(1.0, "told to stop", "sidecar 0", 10)) == [Upset(1.0, NEVER, Trouble.DOWN, "sidecar 0")]


def test_one_more_sidecar_is_an_upset_for_those_that_were_there() -> None:
    assert found(line(1.0, "started", "sidecar 1", 12)) == [Upset(1.0, 1.0, Trouble.JOINED, "sidecar 1")]


def test_a_worker_is_gone_from_when_it_was_told_to_its_end() -> None:
    upsets = found(line(1.0, "killed", "worker", 11), line(1.5, "ended", "worker", 11, code=-9), last_heard=1.2)
    assert upsets[0] == Upset(1.0, 1.5, Trouble.GONE, "journal-1")


def test_a_worker_that_killed_itself_was_gone_since_its_last_line() -> None:
    upsets = found(
        line(1.0, "killed", "worker", 11, by="itself"), line(1.0, "ended", "worker", 11, code=-9), last_heard=0.7
    )
    assert {*upsets} == {Upset(0.7, 1.0, Trouble.GONE, "journal-1")}


def test_what_is_frozen_is_so_until_it_thaws() -> None:
    upsets = found(
        line(1.0, "frozen", "sidecar 0", 10),
        line(1.1, "frozen", "worker", 11),
        line(2.0, "thawed", "worker", 11),
        line(3.0, "thawed", "sidecar 0", 10),
    )
    assert upsets == [Upset(1.0, 3.0, Trouble.FROZEN, "sidecar 0"), Upset(1.1, 2.0, Trouble.NUMB, "journal-1")]


def test_the_broker_is_away_until_it_is_back_or_thaws() -> None:
    upsets = found(
        line(1.0, "fault", act=Act.KILL_BROKER, lasts=0.5),
        line(4.0, "broker is back", "broker", 30),
        line(5.0, "fault", act=Act.FREEZE_BROKER, lasts=0.5),
        line(5.6, "thawed", "broker", 30),
        line(6.0, "fault", act=Act.HOLD_BROKER, lasts=0.5),
    )
    assert upsets == [Upset(at, until, Trouble.BROKER) for at, until in ((1.0, 4.0), (5.0, 5.6), (6.0, 6.5))]


def test_connections_the_disk_and_the_clock() -> None:
    upsets = found(
        line(1.0, "fault", act=Act.CUT_APP, lasts=0.0),
        line(1.5, "fault", act=Act.HOLD_APP, lasts=0.2),
        line(2.0, "full", "disk"),
        line(3.0, "free", "disk"),
        line(4.0, "jumped", "sidecar 0", 10, seconds=5.0),
    )
    assert upsets == [
        Upset(1.0, 1.0, Trouble.CUT),
        Upset(1.5, 1.7, Trouble.NUMB),
        Upset(2.0, 3.0, Trouble.DISK),
        Upset(4.0, 4.0, Trouble.CLOCK, "sidecar 0"),
    ]

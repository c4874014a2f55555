"""What the event log says was done to which process, and for how long."""

from typing import Any

from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind, disturbances_of
from tests.chaos.faults import FaultKind

NEVER = float("inf")


def event(at: float, word: str, who: str = "", pid: int = 0, **more: Any) -> dict[str, Any]:
    return {"at": at, "word": word, "who": who, "pid": pid, **more}


BEGIN = [
    event(0.0, "started", "sidecar 0", 10),
    event(0.1, "started", "worker stream of sidecar 0", 11, journal="journal-1"),
]


def found(*event_log: dict[str, Any], last_heard: float = 0.0) -> list[Disturbance]:
    return disturbances_of([*BEGIN, *event_log], {"journal-1": last_heard})


def test_a_round_begins_without_an_upset() -> None:
    assert not found()


def test_a_sidecar_is_down_until_its_next_process_starts() -> None:
    disturbances = found(
        event(1.0, "killed", "sidecar 0", 10),
        event(1.1, "ended", "sidecar 0", 10, code=-9),
        event(2.0, "started", "sidecar 0", 12),
    )
    assert disturbances == [
        Disturbance(1.0, 2.0, DisturbanceKind.SIDECAR_DOWN, "sidecar 0"),
        Disturbance(1.1, 2.0, DisturbanceKind.SIDECAR_DOWN, "sidecar 0"),
    ]


def test_one_that_leaves_never_comes_back() -> None:
    assert found(event(1.0, "told to stop", "sidecar 0", 10)) == [
        Disturbance(1.0, NEVER, DisturbanceKind.SIDECAR_DOWN, "sidecar 0")
    ]


def test_one_more_sidecar_is_a_disturbance_for_those_that_were_there() -> None:
    assert found(event(1.0, "started", "sidecar 1", 12)) == [
        Disturbance(1.0, 1.0, DisturbanceKind.SIDECAR_JOINED, "sidecar 1")
    ]


def test_a_worker_is_gone_from_when_it_was_told_to_its_end() -> None:
    disturbances = found(event(1.0, "killed", "worker", 11), event(1.5, "ended", "worker", 11, code=-9), last_heard=1.2)
    assert disturbances[0] == Disturbance(1.0, 1.5, DisturbanceKind.WORKER_ENDED, "journal-1")


def test_a_worker_that_killed_itself_was_gone_since_its_last_line() -> None:
    disturbances = found(
        event(1.0, "killed", "worker", 11, by="itself"), event(1.0, "ended", "worker", 11, code=-9), last_heard=0.7
    )
    assert {*disturbances} == {Disturbance(0.7, 1.0, DisturbanceKind.WORKER_ENDED, "journal-1")}


def test_what_is_frozen_is_so_until_it_thaws() -> None:
    disturbances = found(
        event(1.0, "frozen", "sidecar 0", 10),
        event(1.1, "frozen", "worker", 11),
        event(2.0, "thawed", "worker", 11),
        event(3.0, "thawed", "sidecar 0", 10),
    )
    assert disturbances == [
        Disturbance(1.0, 3.0, DisturbanceKind.SIDECAR_FROZEN, "sidecar 0"),
        Disturbance(1.1, 2.0, DisturbanceKind.WORKER_FROZEN, "journal-1"),
    ]


def test_the_broker_is_away_until_it_is_back_or_thaws() -> None:
    disturbances = found(
        event(1.0, "fault", kind=FaultKind.KILL_BROKER, lasts=0.5),
        event(4.0, "broker is back", "broker", 30),
        event(5.0, "fault", kind=FaultKind.FREEZE_BROKER, lasts=0.5),
        event(5.6, "thawed", "broker", 30),
        event(6.0, "fault", kind=FaultKind.HOLD_BROKER, lasts=0.5),
    )
    assert disturbances == [
        Disturbance(at, until, DisturbanceKind.BROKER) for at, until in ((1.0, 4.0), (5.0, 5.6), (6.0, 6.5))
    ]


def test_connections_the_disk_and_the_clock() -> None:
    disturbances = found(
        event(1.0, "fault", kind=FaultKind.CUT_APP, lasts=0.0),
        event(1.5, "fault", kind=FaultKind.HOLD_APP, lasts=0.2),
        event(2.0, "full", "disk"),
        event(3.0, "free", "disk"),
        event(4.0, "jumped", "sidecar 0", 10, seconds=5.0),
    )
    assert disturbances == [
        Disturbance(1.0, 1.0, DisturbanceKind.APP_CUT),
        Disturbance(1.5, 1.7, DisturbanceKind.WORKER_FROZEN),
        Disturbance(2.0, 3.0, DisturbanceKind.DISK),
        Disturbance(4.0, 4.0, DisturbanceKind.CLOCK, "sidecar 0"),
    ]

"""What was disturbed in a round, and for how long: the only reasons that a rule accepts for a redelivery.

Pure: made of the lines of an event log.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from tests.chaos.faults import FaultKind


class DisturbanceKind(StrEnum):
    #: from its end, or from when it was told to end, to its next start
    SIDECAR_DOWN = "a sidecar is down"
    #: beyond those of the start
    SIDECAR_JOINED = "a sidecar joined"
    SIDECAR_FROZEN = "a sidecar is frozen"
    #: a worker, from when it was told to end or was last heard of, to its end
    WORKER_ENDED = "a worker is gone"
    #: or everything between it and its sidecar is delayed
    WORKER_FROZEN = "a worker is frozen"
    #: between workers and a sidecar
    APP_CUT = "connections to the app are cut"
    #: the broker, or connections to it
    BROKER = "the broker"
    CLOCK = "a clock jumped"
    DISK = "the disk is full"


class Disturbance(NamedTuple):
    at: float
    until: float
    kind: DisturbanceKind
    #: the sidecar, or the journal of the worker; empty: nobody in particular
    whom: str = ""


Event = Mapping[str, Any]

_LATE = frozenset((FaultKind.DELAY_APP, FaultKind.HOLD_APP))
_OF_LINE = frozenset((FaultKind.CUT_BROKER, FaultKind.DELAY_BROKER, FaultKind.HOLD_BROKER))
_OF_SERVER = frozenset((FaultKind.KILL_BROKER, FaultKind.STOP_BROKER, FaultKind.FREEZE_BROKER))
_NEVER = float("inf")


def disturbances_of(event_log: list[Event], last_heard: Mapping[str, float]) -> list[Disturbance]:
    """`last_heard`: when each journal was last written to. By time."""
    return sorted(_disturbances(event_log, last_heard))


def _disturbances(event_log: list[Event], last_heard: Mapping[str, float]) -> Iterator[Disturbance]:
    journals = {
        event["pid"]: event["journal"] for event in event_log if event["word"] == "started" and "journal" in event
    }
    sidecars = {
        event["pid"]: event["who"]
        for event in event_log
        if event["word"] == "started" and event["who"].startswith("sidecar") and event["pid"] not in journals
    }
    begun: set[str] = set()
    for number, event in enumerate(event_log):
        later = event_log[number + 1 :]
        at, who, pid = event["at"], event.get("who", ""), event.get("pid", 0)
        match event["word"]:
            case "started" if pid in sidecars:
                # The first of all is how a round begins; one that comes back was down before.
                if begun and who not in begun:
                    yield Disturbance(at, at, DisturbanceKind.SIDECAR_JOINED, who)
                begun.add(who)
            case "killed" | "told to stop" | "ended" if pid in sidecars:
                yield Disturbance(at, _next(later, "started", who=who), DisturbanceKind.SIDECAR_DOWN, who)
            case "killed" | "told to stop" | "ended" if pid in journals:
                # One that ended by itself is found later than that happened.
                ours = event["word"] != "ended" and "by" not in event
                since = at if ours else min(at, last_heard.get(journals[pid], at))
                yield Disturbance(
                    since, _next([event, *later], "ended", pid=pid), DisturbanceKind.WORKER_ENDED, journals[pid]
                )
            case "frozen" if pid in sidecars:
                yield Disturbance(at, _next(later, "thawed", pid=pid), DisturbanceKind.SIDECAR_FROZEN, who)
            case "frozen" if pid in journals:
                yield Disturbance(at, _next(later, "thawed", pid=pid), DisturbanceKind.WORKER_FROZEN, journals[pid])
            case "full":
                yield Disturbance(at, _next(later, "free"), DisturbanceKind.DISK)
            case "jumped":
                yield Disturbance(at, at, DisturbanceKind.CLOCK, who)
            case "fault" if event["kind"] == FaultKind.CUT_APP:
                yield Disturbance(at, at, DisturbanceKind.APP_CUT)
            case "fault" if event["kind"] in _LATE:
                yield Disturbance(at, at + event["lasts"], DisturbanceKind.WORKER_FROZEN)
            case "fault" if event["kind"] in _OF_LINE:
                yield Disturbance(at, at + event["lasts"], DisturbanceKind.BROKER)
            case "fault" if event["kind"] in _OF_SERVER:
                ends = "thawed" if event["kind"] == FaultKind.FREEZE_BROKER else "broker is back"
                yield Disturbance(at, _next(later, ends, who="broker"), DisturbanceKind.BROKER)


def _next(events: Iterable[Event], word: str, **told: Any) -> float:
    found = (
        event for event in events if event["word"] == word and all(event.get(key) == it for key, it in told.items())
    )
    return next((float(event["at"]) for event in found), _NEVER)

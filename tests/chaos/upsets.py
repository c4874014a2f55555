"""What was done to whom in a round, and for how long: the only reasons that a rule takes for a record that comes again.

Pure: made of the lines of a diary.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from tests.chaos.acts import Act


class Trouble(StrEnum):
    #: a sidecar is away: from its end, or from when it was told to end, to its next start
    DOWN = "a sidecar is down"
    #: one more than there were at first
    JOINED = "a sidecar joined"
    FROZEN = "a sidecar is frozen"
    #: a worker, from when it was told to end or was last heard of, to its end
    GONE = "a worker is gone"
    #: or everything between it and its sidecar is late
    NUMB = "a worker is frozen"
    #: between workers and a sidecar
    CUT = "connections to the app are cut"
    #: the broker, or connections to it
    BROKER = "the broker"
    CLOCK = "a clock jumped"
    DISK = "the disk is full"


class Upset(NamedTuple):
    at: float
    until: float
    trouble: Trouble
    #: the sidecar, or the journal of the worker; empty: nobody in particular
    whom: str = ""


Line = Mapping[str, Any]

_LATE = frozenset((Act.DELAY_APP, Act.HOLD_APP))
_OF_LINE = frozenset((Act.CUT_BROKER, Act.DELAY_BROKER, Act.HOLD_BROKER))
_OF_SERVER = frozenset((Act.KILL_BROKER, Act.STOP_BROKER, Act.FREEZE_BROKER))
_NEVER = float("inf")


def upsets_of(diary: list[Line], last_heard: Mapping[str, float]) -> list[Upset]:
    """`last_heard`: when each journal was last written to. By time."""
    return sorted(_upsets(diary, last_heard))


def _upsets(diary: list[Line], last_heard: Mapping[str, float]) -> Iterator[Upset]:
    journals = {line["pid"]: line["journal"] for line in diary if line["word"] == "started" and "journal" in line}
    sidecars = {
        line["pid"]: line["who"]
        for line in diary
        if line["word"] == "started" and line["who"].startswith("sidecar") and line["pid"] not in journals
    }
    begun: set[str] = set()
    for number, line in enumerate(diary):
        later = diary[number + 1 :]
        at, who, pid = line["at"], line.get("who", ""), line.get("pid", 0)
        match line["word"]:
            case "started" if pid in sidecars:
                # The first of all is how a round begins; one that comes back was down before.
                if begun and who not in begun:
                    yield Upset(at, at, Trouble.JOINED, who)
                begun.add(who)
            case "killed" | "told to stop" | "ended" if pid in sidecars:
                yield Upset(at, _next(later, "started", who=who), Trouble.DOWN, who)
            case "killed" | "told to stop" | "ended" if pid in journals:
                # One that ended by itself is found later than that happened.
                ours = line["word"] != "ended" and "by" not in line
                since = at if ours else min(at, last_heard.get(journals[pid], at))
                yield Upset(since, _next([line, *later], "ended", pid=pid), Trouble.GONE, journals[pid])
            case "frozen" if pid in sidecars:
                yield Upset(at, _next(later, "thawed", pid=pid), Trouble.FROZEN, who)
            case "frozen" if pid in journals:
                yield Upset(at, _next(later, "thawed", pid=pid), Trouble.NUMB, journals[pid])
            case "full":
                yield Upset(at, _next(later, "free"), Trouble.DISK)
            case "jumped":
                yield Upset(at, at, Trouble.CLOCK, who)
            case "fault" if line["act"] == Act.CUT_APP:
                yield Upset(at, at, Trouble.CUT)
            case "fault" if line["act"] in _LATE:
                yield Upset(at, at + line["lasts"], Trouble.NUMB)
            case "fault" if line["act"] in _OF_LINE:
                yield Upset(at, at + line["lasts"], Trouble.BROKER)
            case "fault" if line["act"] in _OF_SERVER:
                ends = "thawed" if line["act"] == Act.FREEZE_BROKER else "broker is back"
                yield Upset(at, _next(later, ends, who="broker"), Trouble.BROKER)


def _next(lines: Iterable[Line], word: str, **told: Any) -> float:
    found = (line for line in lines if line["word"] == word and all(line.get(key) == it for key, it in told.items()))
    return next((float(line["at"]) for line in found), _NEVER)

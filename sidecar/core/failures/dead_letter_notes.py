"""The format of notes in the dead-letter topic: what operators did with the dead letters before them. Pure.

Brokers do not remove single records from a topic, and they cannot be changed. So what was sent back or deleted is noted
behind it, in the same lane: wherever the topic goes, or if it is made anew, notes are where their dead letters are.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from sidecar.model.records import Header, Message, Record, Run

#: the only header of a note
HEADER = "offramp-dead-letters"


class Done(StrEnum):
    REDRIVEN = "redriven"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Note:
    """The dead letters of a group at these positions of the lane were redriven or deleted."""

    group: str
    done: Done
    runs: tuple[Run, ...]
    #: milliseconds since 1970, for people
    at_ms: int


def write(note: Note, lane: int) -> Message:
    """The message for the lane of the dead-letter topic in which the dead letters are."""
    content = {"group": note.group, "at_ms": note.at_ms, "runs": note.runs}
    return Message(
        None, json.dumps(content).encode(), (Header(HEADER, note.done.value.encode()),), lane=lane, aside=True
    )


def read(record: Record) -> Note | None:
    """A record of the dead-letter topic; None if it is no note. A note tells only of what is before it."""
    if len(record.headers) != 1 or record.headers[0].name != HEADER:
        return None
    try:
        done = Done((record.headers[0].value or b"").decode())
        content = json.loads(record.value or b"")
        group, at_ms = content["group"], content["at_ms"]
        runs = tuple(Run(start, min(stop, record.position)) for start, stop in content["runs"])
        usable = isinstance(group, str) and type(at_ms) is int
        usable = usable and all(type(place) is int for run in runs for place in run)
        return Note(group, done, runs, at_ms) if usable else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None

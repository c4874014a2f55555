"""What streams, subjects and consumers are called. Pure.

A topic is a stream. A topic whose stream takes exactly the subjects `topic`, `topic.1`, `topic.2` and so on has a lane
for each, and so have the streams that Offramp creates; any other stream is one lane, whatever its subjects are. A name
may have dots, which NATS does not allow in names of streams and consumers: there they become underscores.
"""

import re
from collections.abc import Sequence

from sidecar.model.records import Lane

_TOPIC = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+(\.[^\s.*>/\\\x00-\x1f\x7f]+)*")


def is_allowed(name: str) -> bool:
    """Whether a topic or a group can have this name."""
    return _TOPIC.fullmatch(name) is not None


def stream_of(topic: str) -> str:
    return topic.replace(".", "_")


def subject_of(lane: Lane) -> str:
    """The subject of a lane, in a stream that Offramp created."""
    return f"{lane.topic}.{lane.number}" if lane.number else lane.topic


def subjects_of(topic: str, lanes: int) -> list[str]:
    return [subject_of(Lane(topic, number)) for number in range(lanes)]


def lanes_in(topic: str, subjects: Sequence[str]) -> int:
    """How many lanes a stream with these subjects has."""
    return len(subjects) if subjects and set(subjects) == set(subjects_of(topic, len(subjects))) else 1


def consumer_of(group: str, lane: Lane) -> str:
    name = group.replace(".", "_")
    return f"{name}_{lane.number}" if lane.number else name


def is_within(subject: str, pattern: str) -> bool:
    """Whether a pattern of subjects matches a subject."""
    parts, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">" and len(parts) >= len(wanted):
        parts, wanted = parts[: len(wanted) - 1], wanted[:-1]
    return len(parts) == len(wanted) and all(want in ("*", part) for part, want in zip(parts, wanted, strict=True))

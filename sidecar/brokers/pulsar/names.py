"""Topics as Pulsar calls them. Pure.

The core knows a topic by the name that the configuration gives it. A short one belongs to the configured namespace.
"""

import re

_PARTITION = re.compile(r"(.*)-partition-(\d+)")
_SCHEMES = ("persistent://", "non-persistent://")
#: a topic of the configuration that begins so is a pattern of names
PATTERN = "^"


def full(topic: str, namespace: str) -> str:
    """persistent://tenant/namespace/topic"""
    return topic if topic.startswith(_SCHEMES) else f"persistent://{namespace}/{topic}"


def short(name: str, namespace: str) -> str:
    """As users would write it."""
    return name.removeprefix(f"persistent://{namespace}/")


def path(name: str) -> str:
    """Of a full name in the admin API: persistent/tenant/namespace/topic."""
    return name.replace("://", "/", 1)


def partition(name: str, number: int) -> str:
    """The topic that is one partition of a partitioned topic."""
    return f"{name}-partition-{number}"


def split(name: str) -> tuple[str, int]:
    """The topic that a name is a partition of, and which; (name, -1) if it is none."""
    found = _PARTITION.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, -1)


def is_pattern(topic: str) -> bool:
    return topic.startswith(PATTERN)


def pattern(topic: str, namespace: str) -> tuple[str, "re.Pattern[str]"]:
    """The namespace that a pattern is about, and what full names must match. Raises `re.error`."""
    wanted = full(topic.removeprefix(PATTERN), namespace)
    _, rest = wanted.split("://", 1)
    tenant, space, _ = rest.split("/", 2)
    return f"{tenant}/{space}", re.compile(wanted)


def lane_for(key: str, lanes: int) -> int:
    """Where Pulsar's Java client sends a key unless told otherwise: by Java's hash of a text."""
    units = key.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % lanes

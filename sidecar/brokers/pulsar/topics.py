"""Names of topics, partitions and patterns, and the lanes that a group consumes.

The core knows a topic by the name in the configuration; a short one belongs to the configured namespace. Pulsar knows
it by its full name, and each partition of it as a topic of its own.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sidecar.brokers.base import PATTERN_PREFIX, SourceSpec, is_pattern
from sidecar.model.records import Lane

if TYPE_CHECKING:
    from sidecar.brokers.pulsar.admin import Admin
    from sidecar.brokers.pulsar.client_threads import ClientThreads

_PARTITION = re.compile(r"(.*)-partition-(\d+)")
_SCHEMES = ("persistent://", "non-persistent://")
#: how the default names of retry and dead-letter topics end; a pattern never matches them
_OWN_SUFFIXES = (".offramp.retry", ".offramp.dead")


def full_name(topic: str, namespace: str) -> str:
    """persistent://tenant/namespace/topic"""
    return topic if topic.startswith(_SCHEMES) else f"persistent://{namespace}/{topic}"


def short_name(name: str, namespace: str) -> str:
    """A full name as a user would write it."""
    return name.removeprefix(f"persistent://{namespace}/")


def admin_path(name: str) -> str:
    """A full name as the admin API has it: persistent/tenant/namespace/topic."""
    return name.replace("://", "/", 1)


def partition_name(name: str, number: int) -> str:
    return f"{name}-partition-{number}"


def split_partition(name: str) -> tuple[str, int]:
    """The topic that a name is a partition of, and which; (name, -1) if it is none."""
    found = _PARTITION.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, -1)


def with_lane_numbers(partitions: Iterable[str]) -> Iterable[tuple[int, str]]:
    """A topic without partitions is its own lane 0."""
    for name in partitions:
        yield max(0, split_partition(name)[1]), name


def parse_pattern(topic: str, namespace: str) -> tuple[str, "re.Pattern[str]"]:
    """The namespace of a pattern, and what full names must match. Raises `re.error` and `ValueError`."""
    wanted = full_name(topic.removeprefix(PATTERN_PREFIX), namespace)
    _, rest = wanted.split("://", 1)
    tenant, space, _ = rest.split("/", 2)
    return f"{tenant}/{space}", re.compile(wanted)


def lane_for_key(key: str, lanes: int) -> int:
    """Where Pulsar's Java client sends a key by default: by Java's hash of a string."""
    units = key.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % lanes


class LaneDiscovery:
    """The lanes that a group consumes, as they are now."""

    def __init__(self, spec: SourceSpec, namespace: str, client: "ClientThreads", admin: "Admin") -> None:
        self._spec = spec
        self._namespace = namespace
        self._client = client
        self._admin = admin

    async def lanes(self) -> dict[Lane, str]:
        """Every lane, with its topic at Pulsar. Raises `Unavailable`, `Refused`."""
        found: dict[Lane, str] = {}
        for topic in await self._topics():
            partitions = await self._client.partitions(full_name(topic, self._namespace))
            found |= {Lane(topic, number): name for number, name in with_lane_numbers(partitions)}
        return found

    async def _topics(self) -> Iterable[str]:
        topics = dict.fromkeys(self._spec.own_topics)
        for topic in self._spec.topics:
            topics |= dict.fromkeys(await self._matching(topic) if is_pattern(topic) else [topic])
        return topics

    async def _matching(self, pattern: str) -> list[str]:
        namespace, wanted = parse_pattern(pattern, self._namespace)
        found = (name for name in await self._admin.topics(namespace) if wanted.fullmatch(name))
        shortened = (short_name(name, self._namespace) for name in sorted(found))
        return [name for name in shortened if not name.endswith(_OWN_SUFFIXES)]

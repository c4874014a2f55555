"""Which lanes there are: partitions of topics, and topics of patterns."""

from collections.abc import Iterable

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.pulsar import names
from sidecar.brokers.pulsar.admin import Admin
from sidecar.brokers.pulsar.library import Library
from sidecar.model.records import Lane

#: what topics that groups have for themselves are called, unless told otherwise: no pattern means them
_OWN = (".offramp.retry", ".offramp.dead")


class Discovery:
    """What a group consumes, as it is now."""

    def __init__(self, spec: SourceSpec, namespace: str, library: Library, admin: Admin) -> None:
        self._spec = spec
        self._namespace = namespace
        self._library = library
        self._admin = admin

    async def lanes(self) -> dict[Lane, str]:
        """All lanes, with the topics that they are at Pulsar. Raises `Unavailable`, `Refused`."""
        found: dict[Lane, str] = {}
        for topic in await self._topics():
            for number, name in numbered(await self._library.partitions(names.full(topic, self._namespace))):
                found[Lane(topic, number)] = name
        return found

    async def _topics(self) -> Iterable[str]:
        topics = dict.fromkeys((*self._spec.own_topics,))
        for topic in self._spec.topics:
            if names.is_pattern(topic):
                topics |= dict.fromkeys(await self._matching(topic))
            else:
                topics[topic] = None
        return topics

    async def _matching(self, pattern: str) -> list[str]:
        namespace, wanted = names.pattern(pattern, self._namespace)
        found = (name for name in await self._admin.topics(namespace) if wanted.fullmatch(name))
        shortened = (names.short(name, self._namespace) for name in sorted(found))
        return [name for name in shortened if not name.endswith(_OWN)]


def numbered(partitions: Iterable[str]) -> Iterable[tuple[int, str]]:
    """A topic that is not partitioned is its own lane 0."""
    for name in partitions:
        yield max(0, names.split(name)[1]), name

"""What is wrong with the connection, the group and the topics of a source, and when it is over. On the event loop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from confluent_kafka import KafkaError

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.errors import OF_CONNECTIONS, OF_ONE_BROKER, OF_TOPICS, translate
from sidecar.brokers.kafka.library_logs import Reasons
from sidecar.model.errors import BrokerError, NotFound, Refused

#: seconds between looks whether it is over
_LOOK = 1.0
#: seconds without hearing of it again after which trouble that nothing ends in so many words is over
_QUIET = 30.0

_CONNECTION = "broker"


class Health:
    """The library says what fails, again and again, but rarely that it works again.

    The connection works when the broker answers; the group works when lanes are assigned; of the rest one hears
    no more.
    """

    def __init__(
        self, group: str, reasons: Reasons, tell: Callable[[Trouble], None], ping: Callable[[], Awaitable[object]]
    ) -> None:
        self._group = f"group {group}"
        self._reasons = reasons
        self._tell = tell
        self._ping = ping
        #: by kind: what, and when it was heard last
        self._troubles: dict[str, tuple[BrokerError, float]] = {}
        #: kinds of which one hears nothing more, whether they are over or not
        self._lasting: set[str] = set()

    @property
    def failure(self) -> BrokerError | None:
        """What a person must mend before anything can be consumed."""
        for kind in (_CONNECTION, self._group):
            trouble = self._troubles.get(kind)
            if trouble is not None and isinstance(trouble[0], Refused):
                return trouble[0]
        return None

    @property
    def connection(self) -> str:
        """What is wrong with the connection; empty if nothing is."""
        trouble = self._troubles.get(_CONNECTION)
        return str(trouble[0]) if trouble is not None else ""

    def heard(self, error: KafkaError, topic: str | None) -> None:
        if error.code() in OF_ONE_BROKER:
            # There are others. If all are so, that is told, too.
            return
        reason = self._reasons.behind(error)
        if topic is not None and reason.code() in OF_TOPICS:
            self.note(f"topic {topic}", translate(reason, f"consume {topic}"))
        elif reason.code() in OF_TOPICS:
            self.note("topics", translate(reason, "consume"))
        elif reason.code() in OF_CONNECTIONS:
            self.note(_CONNECTION, translate(reason, "consume"))
        else:
            self.note(self._group, translate(reason, f"consume as {self._group}"))

    def missing(self, topic: str) -> None:
        """A topic is not there; the others are consumed."""
        self._lasting.add(f"topic {topic}")
        self.note(f"topic {topic}", NotFound(f"There is no topic {topic!r}; the others are consumed."))

    def note(self, kind: str, error: BrokerError) -> None:
        before = self._troubles.get(kind)
        self._troubles[kind] = (error, asyncio.get_running_loop().time())
        if before is None or str(before[0]) != str(error):
            self._tell(Trouble(kind, str(error)))

    def assigned(self, topics: Collection[str]) -> None:
        """Lanes of these topics were assigned."""
        self._over(self._group, "topics", *(f"topic {topic}" for topic in topics))

    async def watch(self) -> None:
        """Look whether trouble is over, for ever."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_LOOK)
            if _CONNECTION in self._troubles:
                with contextlib.suppress(BrokerError):
                    await self._ping()
                    self._over(_CONNECTION)
            quiet = [kind for kind, (_, at) in self._troubles.items() if now() - at > _QUIET]
            self._over(*(kind for kind in quiet if kind not in self._lasting and kind != _CONNECTION))

    def _over(self, *kinds: str) -> None:
        for kind in kinds:
            if self._troubles.pop(kind, None) is not None:
                self._tell(Trouble(kind, ""))

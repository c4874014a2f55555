"""Problems of the connection, the group and the topics of a source, and when they are over. On the event loop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from confluent_kafka import KafkaError

from sidecar.brokers.base import Trouble
from sidecar.brokers.kafka.errors import OF_CONNECTIONS, OF_ONE_BROKER, OF_TOPICS, translate
from sidecar.brokers.kafka.library_logs import RecentErrors
from sidecar.model.errors import BrokerError, NotFound, Refused

#: seconds between checks whether problems are over
_CHECK_INTERVAL = 1.0
#: seconds after which a problem that is not reported again counts as over
_QUIET_TIMEOUT = 30.0

#: the kind of a problem with the connection
_CONNECTION = "broker"


class Health:
    """The library reports what fails, again and again, but rarely that it works again.

    The connection works when the broker answers, the group when lanes are assigned. Other problems are over when they
    are no longer reported.
    """

    def __init__(
        self,
        group: str,
        recent_errors: RecentErrors,
        report: Callable[[Trouble], None],
        ping: Callable[[], Awaitable[object]],
    ) -> None:
        self._group = f"group {group}"
        self._recent_errors = recent_errors
        self._report = report
        self._ping = ping
        #: by kind, with the time of the last report
        self._troubles: dict[str, tuple[BrokerError, float]] = {}
        #: kinds that the library does not report again, whether they are over or not
        self._reported_once: set[str] = set()

    @property
    def failure(self) -> BrokerError | None:
        """A problem that somebody must fix before anything can be consumed."""
        for kind in (_CONNECTION, self._group):
            trouble = self._troubles.get(kind)
            if trouble is not None and isinstance(trouble[0], Refused):
                return trouble[0]
        return None

    @property
    def connection(self) -> str:
        """The problem with the connection; empty if there is none."""
        trouble = self._troubles.get(_CONNECTION)
        return str(trouble[0]) if trouble is not None else ""

    def on_error(self, error: KafkaError, topic: str | None) -> None:
        if error.code() in OF_ONE_BROKER:
            # There are others. If all fail, the library reports that, too.
            return
        cause = self._recent_errors.explain(error)
        if topic is not None and cause.code() in OF_TOPICS:
            self._add(f"topic {topic}", translate(cause, f"consume {topic}"))
        elif cause.code() in OF_TOPICS:
            self._add("topics", translate(cause, "consume"))
        elif cause.code() in OF_CONNECTIONS:
            self._add(_CONNECTION, translate(cause, "consume"))
        else:
            self._add(self._group, translate(cause, f"consume as {self._group}"))

    def topic_missing(self, topic: str) -> None:
        """A topic does not exist; the others are consumed."""
        self._reported_once.add(f"topic {topic}")
        self._add(f"topic {topic}", NotFound(f"There is no topic {topic!r}; the others are consumed."))

    def assigned(self, topics: Collection[str]) -> None:
        """Lanes of these topics were assigned."""
        self._end(self._group, "topics", *(f"topic {topic}" for topic in topics))

    async def watch(self) -> None:
        """Runs forever. Checks whether problems are over."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_CHECK_INTERVAL)
            if _CONNECTION in self._troubles:
                with contextlib.suppress(BrokerError):
                    await self._ping()
                    self._end(_CONNECTION)
            quiet = [kind for kind, (_, at) in self._troubles.items() if now() - at > _QUIET_TIMEOUT]
            self._end(*(kind for kind in quiet if kind not in self._reported_once and kind != _CONNECTION))

    def _add(self, kind: str, error: BrokerError) -> None:
        before = self._troubles.get(kind)
        self._troubles[kind] = (error, asyncio.get_running_loop().time())
        if before is None or str(before[0]) != str(error):
            self._report(Trouble(kind, str(error)))

    def _end(self, *kinds: str) -> None:
        for kind in kinds:
            if self._troubles.pop(kind, None) is not None:
                self._report(Trouble(kind, ""))

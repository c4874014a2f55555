"""Notices records that were parked in a topic which is not the retry topic any more: nothing reads them."""

import asyncio
from collections import Counter
from contextlib import aclosing

from sidecar.brokers.base import Broker, Source
from sidecar.core.failures.retry_topic import is_parked
from sidecar.model.errors import BrokerError, NotFound
from sidecar.model.records import Lane, Run
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.troubles import Troubles

#: seconds between looks, and before the next one after the broker did not answer
_INTERVAL, _RETRY_INTERVAL = 60.0, 5.0


class LeftTopics:
    """For brokers with the trait `finds_left_topics`. While another sidecar still has the earlier settings, it reads
    them, and the trouble says what it has left."""

    def __init__(self, settings: SubscriptionSettings, troubles: Troubles, broker: Broker, source: Source) -> None:
        self._settings = settings
        self._troubles = troubles
        self._broker = broker
        self._source = source

    async def run(self) -> None:
        while True:
            try:
                self._report(await self._find())
                wait = _INTERVAL
            except BrokerError:
                # The next poll meets the same error, and reports it.
                wait = _RETRY_INTERVAL
            await asyncio.sleep(wait)

    async def _find(self) -> Counter[str]:
        """Records by topic."""
        found: Counter[str] = Counter()
        for lane, run in (await self._source.left_behind()).items():
            if await self._begins_with_parked(lane, run):
                found[lane.topic] += run.stop - run.start
        return found

    async def _begins_with_parked(self, lane: Lane, run: Run) -> bool:
        try:
            async with aclosing(self._broker.read(lane, run, 1)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    return is_parked(chunk.frames[0])
        except NotFound:
            # Deleted meanwhile.
            pass
        return False

    def _report(self, found: Counter[str]) -> None:
        topics = ", ".join(f"{records:,} in {topic}" for topic, records in sorted(found.items()))
        text = (
            f"parked records are not read: {topics}. The retry topic is {self._settings.retry_topic} now. Set "
            "parking.topic back, with `parking.enabled: false`, until they are done"
        )
        self._troubles.set("left topics", text if found else "")

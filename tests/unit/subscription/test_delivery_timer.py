"""The timer of deliveries, on each event loop."""

import asyncio
import random
from typing import Any
from unittest import mock

import pytest

from sidecar.core.failures.outage import OutageDetector
from sidecar.core.scheduling.budget import Budget
from sidecar.core.scheduling.dispatcher import Dispatcher
from sidecar.core.scheduling.selection import Batching
from sidecar.core.tracker import RecordTracker
from sidecar.model.clock import Clock
from sidecar.settings import SubscriptionSettings
from sidecar.subscription.delivery import Deliverer


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_a_timer_that_is_nearly_due_can_be_set_again(loops: str) -> None:
    module = pytest.importorskip(loops)

    async def body() -> None:
        settings = SubscriptionSettings(name="s", topics=("t",))
        tracker: RecordTracker[Any] = RecordTracker(Dispatcher(Batching(settings.batch), settings.order), b"")
        outage, budget, events = OutageDetector(settings.outage), Budget(settings.budget), mock.Mock()
        deliverer = Deliverer(settings, tracker, Clock(), outage, budget, random.Random(1), events, None)
        # uvloop rounds the rest to nothing, and then answers a handle that has no time.
        now = asyncio.get_running_loop().time() - 0.001
        with mock.patch.object(tracker.leases, "next_deadline", return_value=now):
            deliverer.set_timer(now)
            deliverer.set_timer(now)
        fired = asyncio.Event()
        events.timer_fired.side_effect = fired.set
        async with asyncio.timeout(10):
            await fired.wait()
        assert events.timer_fired.call_count == 1

    with asyncio.Runner(loop_factory=module.new_event_loop) as runner:
        runner.run(body())

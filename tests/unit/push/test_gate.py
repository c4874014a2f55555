"""How many calls may be under way."""

import asyncio
import random

from sidecar.core.failures.backoff import Backoff
from sidecar.push.gate import TROUBLE, Gate
from sidecar.subscription.troubles import Troubles
from tests.event_loop import on_event_loop


class Grants:
    def __init__(self) -> None:
        self.troubles = Troubles("orders")
        self.seen: list[int] = []
        self._changed = asyncio.Event()
        self.gate = Gate(8, self._granted, self.troubles, Backoff(0.001, 2.0, 0.004, 0.0, random.Random(1)))

    def _granted(self, calls: int) -> None:
        self.seen.append(calls)
        self._changed.set()

    async def until(self, *seen: int) -> None:
        async with asyncio.timeout(10):
            while self.seen != [*seen]:
                assert self.seen == [*seen][: len(self.seen)]
                self._changed.clear()
                await self._changed.wait()


@on_event_loop
async def test_after_a_call_that_reached_nobody_one_at_a_time_goes_on() -> None:
    grants = Grants()
    grants.gate.not_reached("nobody there")
    # Those that were under way with it change nothing.
    grants.gate.not_reached("nobody there")
    assert grants.troubles.get(TROUBLE) == "nobody there"
    await grants.until(0, 1)
    grants.gate.not_reached("nobody there")
    await grants.until(0, 1, 0, 1)
    assert grants.gate.waiting
    grants.gate.reached()
    await grants.until(0, 1, 0, 1, 8)
    assert not grants.gate.waiting
    assert not grants.troubles.get(TROUBLE)


@on_event_loop
async def test_a_call_that_comes_through_opens_it_before_its_time() -> None:
    grants = Grants()
    grants.gate.not_reached("nobody there")
    grants.gate.reached()
    await grants.until(0, 8)
    grants.gate.reached()
    assert grants.seen == [0, 8]


@on_event_loop
async def test_after_a_wait_that_the_app_asked_for_all_calls_go_on() -> None:
    grants = Grants()
    grants.gate.wait(0.005)
    grants.gate.wait(60.0)
    assert grants.gate.waiting
    # Answers of calls that were under way do not end it.
    grants.gate.reached()
    await grants.until(0, 8)
    assert not grants.gate.waiting


@on_event_loop
async def test_an_app_that_has_asked_to_wait_and_is_gone_is_not_there() -> None:
    grants = Grants()
    grants.gate.wait(60.0)
    grants.gate.not_reached("nobody there")
    grants.gate.wait(60.0)
    await grants.until(0, 0, 1)
    grants.gate.close()

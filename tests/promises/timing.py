"""Real time that can leap: an hour passes when the test says so.

Threads, sockets and disks work as ever, so that real brokers can be used; only what waits for a time of the
event loop finds that it has come. Time does not leap while a broker is asked something: what takes a server a few
milliseconds would seem to take it minutes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sidecar.model.clock import Clock

#: seconds of the real clock after which a thing that was waited for counts as missing
PATIENCE = 60.0


#: seconds of the real clock that time stands still for one question; a broker that takes longer is slow
STILL = 20.0


class LeapingLoop(asyncio.SelectorEventLoop):
    #: seconds that were leapt over
    leapt = 0.0
    #: questions to brokers that are under way, by when they were asked
    asked: dict[object, float]

    def __init__(self) -> None:
        super().__init__()
        self.asked = {}

    def time(self) -> float:
        return super().time() + self.leapt


class LeapingClock(Clock):
    """The clock of a subscription on a `LeapingLoop`."""

    def wall_ms(self) -> int:
        return super().wall_ms() + int(_loop().leapt * 1000)


@contextmanager
def standing_still() -> Iterator[None]:
    """Time does not leap meanwhile."""
    asked, question = _loop().asked, object()
    asked[question] = time.monotonic()
    try:
        yield
    finally:
        del asked[question]


async def leap(seconds: float) -> None:
    """Let so much time pass at once. Returns when what was due in between has had its turn."""
    await until(lambda: all(time.monotonic() - since > STILL for since in _loop().asked.values()), "brokers answer")
    _loop().leapt += seconds
    # Once for the timers, once for what they called soon.
    for _ in range(2):
        await asyncio.sleep(0)


@asynccontextmanager
async def hurry(seconds: float = 0.5) -> AsyncIterator[None]:
    """Time flies meanwhile, in steps of so many seconds: for what must happen some time, whenever that is."""

    async def fly() -> None:
        while True:
            await leap(seconds)
            await asyncio.sleep(0.002)

    flying = asyncio.create_task(fly())
    try:
        yield
    finally:
        flying.cancel()


async def until(seen: Callable[[], object], what: str = "") -> None:
    """Wait for the thing."""
    ends = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < ends, f"did not happen within {PATIENCE:g} s: {what or seen}"
        await asyncio.sleep(0.001)


def now() -> float:
    return asyncio.get_running_loop().time()


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(body())


def _loop() -> LeapingLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    return loop

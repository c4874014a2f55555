"""An event loop whose clock a test can move forward: an hour passes when the test says so.

Threads, sockets and disks work as usual, so real brokers can be used; only timers of the event loop come due early.
The clock does not move while a broker is called: what takes a server milliseconds would seem to take minutes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sidecar.model.clock import Clock

#: seconds of the real clock after which `until` fails
TIMEOUT = 60.0
#: seconds of the real clock that one call to a broker may hold the clock
LONGEST_HOLD = 20.0


class AdjustableLoop(asyncio.SelectorEventLoop):
    #: seconds that the clock is ahead of the real one
    advanced = 0.0
    #: calls to brokers that are under way, and when each began
    calls: dict[object, float]

    def __init__(self) -> None:
        super().__init__()
        self.calls = {}

    def time(self) -> float:
        return super().time() + self.advanced


class AdjustableClock(Clock):
    """The clock of a subscription on an `AdjustableLoop`."""

    def wall_ms(self) -> int:
        return super().wall_ms() + int(_loop().advanced * 1000)


@contextmanager
def hold_time() -> Iterator[None]:
    """The clock is not moved within."""
    calls, call = _loop().calls, object()
    calls[call] = time.monotonic()
    try:
        yield
    finally:
        del calls[call]


async def advance(seconds: float) -> None:
    """Move the clock forward. Returns when the timers that came due have run."""
    await until(
        lambda: all(time.monotonic() - since > LONGEST_HOLD for since in _loop().calls.values()), "brokers answer"
    )
    _loop().advanced += seconds
    # One turn for the timers, one for the callbacks that they scheduled.
    for _ in range(2):
        await asyncio.sleep(0)


@asynccontextmanager
async def fast_forward(seconds: float = 0.5) -> AsyncIterator[None]:
    """Move the clock forward in steps all through the block, for what must happen at some time, no matter when."""

    async def step_forward() -> None:
        while True:
            await advance(seconds)
            await asyncio.sleep(0.002)

    stepping = asyncio.create_task(step_forward())
    try:
        yield
    finally:
        stepping.cancel()


async def until(seen: Callable[[], object], what: str = "") -> None:
    """Wait until the condition holds."""
    ends = time.monotonic() + TIMEOUT
    while not seen():
        assert time.monotonic() < ends, f"did not happen within {TIMEOUT:g} s: {what or seen}"
        await asyncio.sleep(0.001)


def now() -> float:
    return asyncio.get_running_loop().time()


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=AdjustableLoop) as runner:
        runner.run(body())


def _loop() -> AdjustableLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, AdjustableLoop)
    return loop

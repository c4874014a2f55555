"""Time as the loops see it. Pure rooms take `now` as an argument instead."""

import asyncio
import time


class Clock:
    """Real time. The simulation has a virtual one."""

    def now(self) -> float:
        """Seconds on the running loop's clock. Never goes back."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what is written down: headers, and due times that survive a restart."""
        return time.time_ns() // 1_000_000

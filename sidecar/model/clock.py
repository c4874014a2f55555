"""Time, for code that awaits. The core takes `now` as an argument instead."""

import asyncio
import time


class Clock:
    """Real time. The simulation replaces it by virtual time."""

    def now(self) -> float:
        """Seconds on the running loop's clock. Never goes back."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for times that are stored: in headers, and when a parked record is due."""
        return time.time_ns() // 1_000_000

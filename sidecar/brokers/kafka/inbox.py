"""What is asked of the poll thread."""

import threading
import time
from collections import deque
from collections.abc import Callable

Command = Callable[[], None]


class Inbox:
    """Filled by any thread, worked off by one."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._later: deque[Command] = deque()
        self._wake = threading.Condition()
        #: when something was asked last
        self.asked = time.monotonic()

    def put(self, command: Command) -> None:
        """To be done soon, also while a rebalance waits within a poll."""
        self._commands.append(command)
        self.wake()

    def put_later(self, command: Command) -> None:
        """To be done between two polls: what a poll brings of a lane must not be taken for what follows the command."""
        self.put(lambda: self._later.append(command))

    def wake(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait for something to do, but no longer than this."""
        with self._wake:
            if not self._commands:
                self._wake.wait(seconds)

    def work(self) -> None:
        """Do what is to be done soon."""
        if self._commands:
            self.asked = time.monotonic()
        while self._commands:
            self._commands.popleft()()

    def work_all(self) -> None:
        """Do everything. Between two polls only."""
        self.work()
        while self._later:
            self._later.popleft()()

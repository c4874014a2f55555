"""Threads that wait, and signal handlers that raise in the middle of it."""

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from offramp._internal.inbox import ThreadInbox
from offramp._internal.signal_safe import Event, WaitQueue
from offramp.batch import Batch
from offramp.v1 import record_pb2 as pb


class Struck(Exception):
    pass


@contextmanager
def raising() -> Iterator[None]:
    """SIGALRM raises `Struck` in here."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def batch() -> Batch:
    return Batch(pb.Batch(lease=b"1"), None, 0.0)  # type: ignore[arg-type]


def test_an_exception_of_a_signal_handler_leaves_an_inbox_usable() -> None:
    inbox, seed = ThreadInbox(), random.Random(7)
    struck = 0
    for _ in range(2000):
        with raising():
            try:
                signal.setitimer(signal.ITIMER_REAL, seed.uniform(1e-6, 60e-6))
                while inbox.take(0.0005) is None:
                    pass
            except Struck:
                struck += 1
        assert not inbox._waiters
        other = threading.Thread(target=lambda: (inbox.put(batch()), inbox.take_back()), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive(), "the inbox is locked"
    assert struck == 2000
    inbox.put(batch())
    assert inbox.take(0) is not None


def test_one_who_is_struck_when_woken_lets_another_have_the_turn() -> None:
    waiters, woken = WaitQueue(), Event()
    lock = threading.Lock()
    lock.acquire()
    waiters._locks.append(lock)  # Another one, who waits.

    def strike() -> bool:
        waiters._locks.rotate(1)
        waiters.wake_one()
        raise Struck

    try:
        waiters.wait(None, strike)
    except Struck:
        woken.set()
    assert woken.is_set()
    assert lock.acquire(timeout=0), "nobody was woken"
    assert len(waiters) == 0


def test_a_signal_in_the_moment_in_which_the_main_thread_begins_to_wait_is_seen() -> None:
    # A signal that another thread takes does not interrupt the wait, just as one that comes in that moment does not.
    seen = Event()
    before = signal.signal(signal.SIGALRM, lambda *_: seen.set())
    try:
        threading.Timer(0.2, signal.raise_signal, (signal.SIGALRM,)).start()
        assert seen.wait()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_flag_wakes_all_who_wait_for_it() -> None:
    flag = Event()
    seen: list[bool] = []
    threads = [threading.Thread(target=lambda: seen.append(flag.wait(60)), daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(60)
    assert seen == [True] * 5
    assert flag.wait(0)
    assert not Event().wait(0)

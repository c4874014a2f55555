"""Group commit: one thread writes, and many callers share one transaction and one sync of the disk."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sidecar.brokers.local.catalog import LaneChange
from sidecar.brokers.local.faults import is_full, may_be_of_one, translate
from sidecar.brokers.local.folder import Folder
from sidecar.brokers.local.reserve import Reserve
from sidecar.brokers.local.schema import checkpoint, cut_journal, journal_of
from sidecar.brokers.local.store import Store
from sidecar.model.errors import OutOfRoom, StartError, Unavailable
from sidecar.observability.logs import Log

log = Log("local")

T = TypeVar("T")

#: bytes published in one transaction, so that no caller waits for another's megabytes and the journal stays small
_GROUP_BYTES = 2 << 20
_GROUP_JOBS = 1_000
#: seconds between attempts to make the reserve anew
_RESERVE_RETRY = 1.0
#: seconds after which it is tried again to begin the journal anew, and those that each try may keep callers waiting for
#: readers: reads are short, and those that begin meanwhile are not in the way
_JOURNAL_RETRY, _JOURNAL_PATIENCE = 1.0, 0.1


@dataclass(slots=True, eq=False)
class _Job:
    """Something to do within a transaction. If it raises anything but a `sqlite3.Error`, it leaves the transaction
    in a state that may be committed."""

    run: Callable[[Store], Any]
    answer: "asyncio.Future[Any]"
    #: takes room on the disk for good: refused while the disk is full
    publishes: bool
    size: int
    #: how it went
    result: Any = None
    error: Exception | None = None


class Writer:
    """The thread that owns the store. Everything is answered on the event loop, after its transaction is on disk."""

    def __init__(
        self,
        store: Store,
        connection: sqlite3.Connection,
        folder: Folder,
        reserve: Reserve,
        *,
        on_change: Callable[[Sequence[LaneChange]], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        """`on_change` and `on_trouble` are called on the running loop; the former before callers get their answers,
        the latter with an empty text when the trouble is over."""
        self._store = store
        self._connection = connection
        self._folder = folder
        self._path = folder.database
        self._reserve = reserve
        self._journal = journal_of(folder.database)
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._retry_reserve_at = self._retry_journal_at = 0.0
        self._trouble = ""
        #: others may have written, and the loop was not told yet
        self._was_shared = False
        self._thread = threading.Thread(target=self._run, name="offramp-local-writer", daemon=True)
        self._thread.start()

    async def submit(self, run: Callable[[Store], T], *, publishes: bool = False, size: int = 0) -> T:
        """Do it in a transaction; returns its result once that is on disk. Cancelling does not undo it.

        Raises what `run` raises, `OutOfRoom`, `Unavailable` or `Corrupt`.
        """
        if self._closed:
            raise Unavailable(f"{self._path} is closed.")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(run, answer, publishes, size))
        return await answer

    async def close(self) -> None:
        """Finish what was submitted, then end the thread. Closes the store."""
        self._closed = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._take()
            changes = self._work(jobs)
            if not self._reserve.held:
                self._refill()
            self._tell(jobs, changes)
            if self._reserve.held:
                self._shorten_journal()
        self._store.close()

    def _take(self) -> tuple[list[_Job], bool]:
        """The jobs of the next transaction: all that wait, within reason. False: there will be no more."""
        jobs: list[_Job] = []
        size = 0
        try:
            job = self._jobs.get(timeout=None if self._reserve.held else _RESERVE_RETRY)
            while job is not None:
                jobs.append(job)
                size += job.size
                if len(jobs) == _GROUP_JOBS or size >= _GROUP_BYTES:
                    return jobs, True
                job = self._jobs.get_nowait()
        except Empty:
            return jobs, True
        return jobs, False

    def _work(self, jobs: list[_Job]) -> Sequence[LaneChange]:
        """Do the jobs, and put down how each went. Answers the lanes that changed."""
        reason: Exception
        try:
            if not self._reserve.held:
                jobs = self._turn_away_publishes(jobs)
            try:
                return self._transact(jobs)
            except sqlite3.Error as error:
                if len(jobs) > 1 and may_be_of_one(error):
                    return self._work_apart(jobs)
                if not is_full(error, self._path):
                    raise
            self._reserve.give_up()
            jobs = self._turn_away_publishes(jobs)
            checkpoint(self._connection)
            return self._transact(jobs)
        except sqlite3.Error as error:
            reason = translate(error, self._path)
            reason.__cause__ = error
        except Exception as error:
            # A bug. Its callers must hear of it, and others must be able to go on.
            reason = error
        for job in jobs:
            job.error = reason
        return ()

    def _work_apart(self, jobs: list[_Job]) -> Sequence[LaneChange]:
        """The jobs in two transactions, and so on: whoever has met a damage finds it alone in the end, and the others
        need not suffer for it."""
        middle = len(jobs) // 2
        return [*self._work(jobs[:middle]), *self._work(jobs[middle:])]

    def _transact(self, jobs: list[_Job]) -> Sequence[LaneChange]:
        if not jobs:
            return ()
        try:
            self._store.begin()
            self._check_lock()
            for job in jobs:
                job.error = None
                try:
                    job.result = job.run(self._store)
                except sqlite3.Error:
                    raise
                except Exception as error:
                    job.error = error
            changes = self._store.commit()
        except BaseException:
            self._store.rollback()
            raise
        if self._was_shared:
            self._was_shared = False
            return self._store.lanes()
        return changes

    def _check_lock(self) -> None:
        """Within a transaction, so that another sidecar is there already or finds what is written now. It would give
        positions that this one has given, and the later record would take the place of the earlier."""
        try:
            if self._folder.keep():
                return
        except StartError as error:
            raise Unavailable(f"The lock of this sidecar was removed while it was running. {error}") from error
        log.warning(f"the lock of {self._folder.path} was removed by somebody; it is taken again")
        self._was_shared = True
        self._store.reload()

    def _turn_away_publishes(self, jobs: list[_Job]) -> list[_Job]:
        """The jobs that may still run. The others are refused."""
        for job in jobs:
            if job.publishes:
                job.error = self._no_room()
        return [job for job in jobs if not job.publishes]

    def _refill(self) -> None:
        """Try to make the reserve again: the disk may have room by now."""
        now = time.monotonic()
        if now < self._retry_reserve_at:
            return
        self._retry_reserve_at = now + _RESERVE_RETRY
        try:
            # The file becomes as small as retention has made it.
            if checkpoint(self._connection) and self._journal.stat().st_size > self._reserve.size:
                # One write may have filled the disk and left again: nobody but its journal takes the room then.
                cut_journal(self._connection)
            self._reserve.hold_again()
        except (OSError, sqlite3.Error):
            # Whatever it is, what the reserve was kept for cannot be relied on before it is back.
            return

    def _shorten_journal(self) -> None:
        """SQLite copies it into the database now and then, but begins it anew only if it meets no reader just then.
        With readers that take turns it would grow for ever, past what the reserve has room for."""
        if time.monotonic() < self._retry_journal_at:
            return
        done = False
        with contextlib.suppress(OSError, sqlite3.Error):
            done = self._journal.stat().st_size <= self._reserve.size or checkpoint(self._connection, _JOURNAL_PATIENCE)
        if not done:
            self._retry_journal_at = time.monotonic() + _JOURNAL_RETRY

    def _no_room(self) -> OutOfRoom:
        return OutOfRoom(
            f"The disk of {self._path} is full: nothing can be published, settling goes on from the reserve. "
            "Free some space, or lower `retention_bytes`; publishing goes on by itself then."
        )

    def _tell(self, jobs: list[_Job], changes: Sequence[LaneChange]) -> None:
        trouble = "" if self._reserve.held else str(self._no_room())
        if not jobs and trouble == self._trouble:
            return
        self._trouble = trouble
        try:
            self._loop.call_soon_threadsafe(self._finish, jobs, changes, trouble)
        except RuntimeError:
            # The loop was closed under us: nobody is there to be told.
            self._closed = True

    def _finish(self, jobs: list[_Job], changes: Sequence[LaneChange], trouble: str) -> None:
        self._on_change(changes)
        self._on_trouble(trouble)
        for job in jobs:
            if job.answer.done():
                continue
            if job.error is None:
                job.answer.set_result(job.result)
            else:
                job.answer.set_exception(job.error)

"""Writing: one thread, and group commits, so that many callers share one transaction and one sync of the disk."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sidecar.brokers.local.append import Appender
from sidecar.brokers.local.catalog import Catalog, LaneView
from sidecar.brokers.local.disk_space import DiskReserve
from sidecar.brokers.local.folder import Folder
from sidecar.brokers.local.groups import Groups
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.retention import Retention
from sidecar.brokers.local.schema import checkpoint, cut_journal, journal_of
from sidecar.brokers.local.sqlite_errors import is_disk_full, is_of_a_statement, translate
from sidecar.model.clock import Clock
from sidecar.model.errors import OutOfRoom, StartError, Unavailable
from sidecar.observability.logs import Log

log = Log("local")

T = TypeVar("T")

#: bytes published in one transaction, so that no caller waits for another's megabytes and the journal stays small
_GROUP_BYTES = 2 << 20
_GROUP_JOBS = 1_000
#: seconds between attempts to make the reserve again
_RESERVE_RETRY_INTERVAL = 1.0
#: seconds between attempts to start the journal again
_JOURNAL_RETRY_INTERVAL = 1.0
#: seconds that such an attempt waits for readers, and callers with it; reads are short, and new ones are not in the way
_JOURNAL_TIMEOUT = 0.1


class Store:
    """The parts of the database that can be written, and their transactions. Synchronous; used by one thread."""

    def __init__(self, connection: sqlite3.Connection, options: LocalOptions, clock: Clock) -> None:
        self._connection = connection
        self._options = options
        self._clock = clock
        self.reload()

    def reload(self) -> None:
        """Reads the lanes again: what is known of them may differ from the disk."""
        self.catalog = Catalog(self._connection)
        self.appender = Appender(self._connection, self.catalog, self._clock, self._options)
        self.groups = Groups(self._connection, self.catalog, self._options.lanes)
        self.retention = Retention(self._connection, self.catalog, self.groups, self._options)
        self._is_stale = False

    def begin(self) -> None:
        if self._is_stale:
            self.reload()
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> list[LaneView]:
        """Returns the lanes that changed, once everything is on the disk."""
        self.appender.flush()
        self._connection.execute("COMMIT")
        return self.catalog.pop_changes()

    def rollback(self) -> None:
        # What is known of the lanes is ahead of the disk, so it is read again before the next transaction.
        self._is_stale = True
        # When the disk is full, SQLite rolls back by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def add_lanes(self, topic: str, lanes: int) -> None:
        self.groups.join_lanes(topic, self.catalog.add_lanes(topic, lanes))


@dataclass(slots=True, eq=False)
class _Job:
    """Something to do within a transaction. If it raises anything but a `sqlite3.Error`, the transaction can still be
    committed."""

    run: Callable[[Store], Any]
    answer: "asyncio.Future[Any]"
    #: needs more space on the disk: refused while the disk is full
    publishes: bool
    size: int
    result: Any = None
    error: Exception | None = None


class Writer:
    """The thread that owns the store. Callers get results on the event loop, once their transaction is on the disk."""

    def __init__(
        self,
        store: Store,
        connection: sqlite3.Connection,
        folder: Folder,
        reserve: DiskReserve,
        *,
        on_change: Callable[[Sequence[LaneView]], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        """`on_change` and `on_trouble` are called on the running loop: `on_change` before callers get their results,
        `on_trouble` with an empty text when the trouble is over."""
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
        #: another process may have written, and the event loop does not know yet
        self._was_shared = False
        self._thread = threading.Thread(target=self._run, name="offramp-local-writer", daemon=True)
        self._thread.start()

    async def submit(self, run: Callable[[Store], T], *, publishes: bool = False, size: int = 0) -> T:
        """Calls `run` in a transaction. Returns its result once that is on the disk. Cancelling does not undo it.

        Raises what `run` raises, `OutOfRoom`, `Unavailable` or `Corrupt`.
        """
        if self._closed:
            raise Unavailable(f"{self._path} is closed.")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(run, answer, publishes, size))
        return await answer

    async def close(self) -> None:
        """Finishes what was submitted, then ends the thread. Closes the store."""
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
            self._report(jobs, changes)
            if self._reserve.held:
                self._shorten_journal()
        self._connection.close()

    def _take(self) -> tuple[list[_Job], bool]:
        """The jobs of the next transaction: all that wait, up to the limits. False: there will be no more."""
        jobs: list[_Job] = []
        size = 0
        try:
            job = self._jobs.get(timeout=None if self._reserve.held else _RESERVE_RETRY_INTERVAL)
            while job is not None:
                jobs.append(job)
                size += job.size
                if len(jobs) == _GROUP_JOBS or size >= _GROUP_BYTES:
                    return jobs, True
                job = self._jobs.get_nowait()
        except Empty:
            return jobs, True
        return jobs, False

    def _work(self, jobs: list[_Job]) -> Sequence[LaneView]:
        """Does the jobs, and stores the result or the error of each. Returns the lanes that changed."""
        reason: Exception
        try:
            if not self._reserve.held:
                jobs = self._refuse_publishes(jobs)
            try:
                return self._transact(jobs)
            except sqlite3.Error as error:
                if len(jobs) > 1 and is_of_a_statement(error):
                    return self._work_in_halves(jobs)
                if not is_disk_full(error, self._path):
                    raise
            self._reserve.give_up()
            jobs = self._refuse_publishes(jobs)
            checkpoint(self._connection)
            return self._transact(jobs)
        except sqlite3.Error as error:
            reason = translate(error, self._path)
            reason.__cause__ = error
        except Exception as error:
            # A bug. Its callers must get the error, and others must be able to continue.
            reason = error
        for job in jobs:
            job.error = reason
        return ()

    def _work_in_halves(self, jobs: list[_Job]) -> Sequence[LaneView]:
        """Does the jobs in two transactions, and halves those again if they fail: in the end a job that meets damage
        fails alone."""
        middle = len(jobs) // 2
        return [*self._work(jobs[:middle]), *self._work(jobs[middle:])]

    def _transact(self, jobs: list[_Job]) -> Sequence[LaneView]:
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
            return self._store.catalog.all_lanes()
        return changes

    def _check_lock(self) -> None:
        """Within a transaction, so that another sidecar either has the lock already or reads what is written now.
        Otherwise both would give the same positions, and a later record would replace an earlier one."""
        try:
            if self._folder.keep():
                return
        except StartError as error:
            raise Unavailable(f"The lock of this sidecar was removed while it was running. {error}") from error
        log.warning(f"the lock of {self._folder.path} was removed, and is taken again")
        self._was_shared = True
        self._store.reload()

    def _refuse_publishes(self, jobs: list[_Job]) -> list[_Job]:
        """Refuses jobs that publish. Returns the others."""
        for job in jobs:
            if job.publishes:
                job.error = self._no_room()
        return [job for job in jobs if not job.publishes]

    def _refill(self) -> None:
        """Tries to make the reserve again: the disk may have space by now."""
        now = time.monotonic()
        if now < self._retry_reserve_at:
            return
        self._retry_reserve_at = now + _RESERVE_RETRY_INTERVAL
        try:
            # Shrinks the database file to what retention has left of it.
            if checkpoint(self._connection) and self._journal.stat().st_size > self._reserve.size:
                # Perhaps the disk is full only because of the journal, which a large write that failed has extended.
                cut_journal(self._connection)
            # As much must be free beside it: with less, it would be given up the next moment.
            self._reserve.hold(spare=self._reserve.size)
        except (OSError, sqlite3.Error):
            # Whatever the reason, the disk counts as full until the reserve is back.
            return

    def _shorten_journal(self) -> None:
        """SQLite copies the journal into the database now and then, but starts it again only if nobody reads at that
        moment. With many readers it would grow without limit, beyond what the reserve has space for."""
        if time.monotonic() < self._retry_journal_at:
            return
        done = False
        with contextlib.suppress(OSError, sqlite3.Error):
            done = self._journal.stat().st_size <= self._reserve.size or checkpoint(self._connection, _JOURNAL_TIMEOUT)
        if not done:
            self._retry_journal_at = time.monotonic() + _JOURNAL_RETRY_INTERVAL

    def _no_room(self) -> OutOfRoom:
        return OutOfRoom(
            f"The disk of {self._path} is full: nothing can be published, settling continues in the reserve. "
            "Free some space, or lower `retention_bytes`; publishing then continues by itself."
        )

    def _report(self, jobs: list[_Job], changes: Sequence[LaneView]) -> None:
        trouble = "" if self._reserve.held else str(self._no_room())
        if not jobs and trouble == self._trouble:
            return
        self._trouble = trouble
        try:
            self._loop.call_soon_threadsafe(self._finish, jobs, changes, trouble)
        except RuntimeError:
            # The event loop is closed: there is nobody to report to.
            self._closed = True

    def _finish(self, jobs: list[_Job], changes: Sequence[LaneView], trouble: str) -> None:
        self._on_change(changes)
        self._on_trouble(trouble)
        for job in jobs:
            if job.answer.done():
                continue
            if job.error is None:
                job.answer.set_result(job.result)
            else:
                job.answer.set_exception(job.error)

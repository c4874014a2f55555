"""The connection to the sidecar, kept up across its restarts."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

import grpc.aio

from offramp import errors
from offramp._internal import fork_safety
from offramp._internal.backoff import LONGEST, Backoff
from offramp._internal.inbox import Inbox
from offramp._internal.outbox import Outbox, PendingExtension, PendingSettlement, Wakeup
from offramp._internal.session import Session
from offramp.answers import Answer, SettleResult
from offramp.batch import Batch
from offramp.options import Options
from offramp.outcomes import Outcome
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2

logger = logging.getLogger("offramp")

#: seconds that the sidecar has to answer the last settlements
CLOSE_TIMEOUT = 5.0
#: the same while it has not sent a welcome: one may be on its way, with batches that are better given back
UNCONNECTED_CLOSE_TIMEOUT = 1.0


class Connection:
    """One session after another, until `close` or a refusal.

    Made on an event loop, and runs there. `ack`, `settle`, `extend`, `drain` and `on_wait` may be called by any thread.
    """

    def __init__(self, options: Options, inbox: Inbox) -> None:
        fork_safety.check_can_open()
        self._options = options
        self._inbox = inbox
        inbox.on_wait = self.on_wait
        self._outbox = Outbox(options.on_result)
        self._wakeup = Wakeup()
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._draining = asyncio.Event()
        self._session: Session | None = None
        #: on the monotonic clock; None while connected, and before the first failure
        self._lost_at: float | None = None
        self._ended = False
        self._give_up_lock = threading.Lock()
        self._task = self._loop.create_task(self._run())

    @property
    def connected(self) -> bool:
        session = self._session
        return session is not None and session.welcomed

    # For batches

    def ack(self, batch: Batch, *, automatic: bool) -> Answer[SettleResult]:
        return self._settle(PendingSettlement(batch, None, automatic=automatic))

    def settle(self, batch: Batch, settlement: record_pb2.Settlement, *, automatic: bool) -> Answer[SettleResult]:
        return self._settle(PendingSettlement(batch, settlement, automatic=automatic))

    def _settle(self, pending: PendingSettlement) -> Answer[SettleResult]:
        self.check_process()
        self._outbox.settle(pending)
        self._wake_writer()
        return pending.answer

    def extend(self, batch: Batch, seconds: float) -> Answer[float]:
        self.check_process()
        extension = record_pb2.Extension(lease=batch.lease, lease_for_ms=round(seconds * 1_000))
        pending = PendingExtension(extension, Answer())
        self._outbox.extend(pending)
        self._wake_writer()
        return pending.answer

    def _wake_writer(self) -> None:
        self._wakeup.wake()
        # Last: `_run` sets this before it empties the outbox, so one of the two sees what was just queued.
        if self._ended:
            self._give_up()

    # For whoever takes batches

    def check_process(self) -> None:
        """Raises `Forked`."""
        fork_safety.check_opened_here(self._pid)

    def on_wait(self) -> None:
        """A worker waits for a batch and there is none."""
        if threading.get_ident() == self._thread:
            if self._session is not None:
                self._session.on_wait()
        else:
            self._call_soon(self.on_wait)

    def drain(self) -> None:
        """Deliver no further batch; takers get None. What is in hand can still be settled.

        Takes effect soon. Safe in a signal handler: those run in the loop's own thread but outside of the loop, which
        must be woken as by another thread.
        """
        self._call_soon(self._drain)

    async def close(self, in_hand: Outcome | None) -> None:
        """Settle what workers still hold with `in_hand`, and end the session. Returns within about `CLOSE_TIMEOUT`.

        None: the workers were interrupted. What they hold is left to the sidecar, which treats it as possibly
        processed.
        """
        self._drain()
        timeout = CLOSE_TIMEOUT if self.connected else UNCONNECTED_CLOSE_TIMEOUT
        if self._session is not None:
            self._session.close(in_hand)
        try:
            await asyncio.wait({self._task}, timeout=timeout)
            if not self._task.done():
                logger.warning("the sidecar did not answer within %g seconds; leaving without", timeout)
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})

    def _drain(self) -> None:
        if not self._draining.is_set():
            self._draining.set()
            self._inbox.close()
            if self._session is not None:
                self._session.drain()

    def _call_soon(self, call: Callable[[], None]) -> None:
        # A closed loop has no batches, and nothing to drain.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    # Staying connected

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            await self._stay_connected()
        except Exception as error:
            failure = error
            if self._draining.is_set():
                logger.warning("the connection to the sidecar failed while draining: %s", error)
        finally:
            self._ended = True
            self._inbox.close(failure)
            self._give_up()

    async def _stay_connected(self) -> None:
        backoff = Backoff()
        try:
            while self._session is not None or not self._draining.is_set():
                session = self._session = self._session or self._new_session()
                reason, ended = await self._connect(session)
                if ended or not session.may_resume():
                    self._end_session()
                    if self._draining.is_set():
                        return
                self._on_loss(reason, session.lasted)
                if session.lasted > LONGEST:
                    backoff.reset()
                await self._pause(backoff.next())
        finally:
            self._end_session()

    async def _connect(self, session: Session) -> tuple[str, bool]:
        """Returns why the connection is over, and whether the sidecar has ended the session."""
        try:
            await session.run()
        except grpc.aio.AioRpcError as error:
            status = errors.Failure.of(error)
            refusal = status.refusal(self._options.target)
            if refusal is not None:
                raise refusal from error
            # Without a reason, the sidecar has not said it.
            return status.text or status.code.name, bool(status.reason)
        except errors.Unavailable as error:
            return str(error), False
        return "the sidecar ended the stream", True

    async def _pause(self, seconds: float) -> None:
        """Until the next attempt. Ends early if it drains, unless there is a session to resume first."""
        if self._draining.is_set():
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()

    def _new_session(self) -> Session:
        return Session(self._options, self, self._inbox, self._outbox, self._wakeup, self._on_welcome)

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end()

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        where = (self._options.subscription, self._options.target, welcome.sidecar_version)
        if self._lost_at is None:
            logger.info("%s: connected to the sidecar at %s (version %s)", *where)
        else:
            away = time.monotonic() - self._lost_at
            logger.info("%s: connected to the sidecar at %s (version %s) after %.1f seconds", *where, away)
            self._lost_at = None

    def _on_loss(self, reason: str, lasted: float) -> None:
        """One line for each outage, however many attempts it takes."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            what = "lost the sidecar" if lasted else "cannot reach the sidecar"
            logger.warning(
                "%s: %s at %s: %s; trying until it is there",
                self._options.subscription,
                what,
                self._options.target,
                reason,
            )

    def _give_up(self) -> None:
        with self._give_up_lock:
            self._outbox.give_up("the connection is closed")

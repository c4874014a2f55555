"""The connection to the sidecar, kept up across its restarts."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

import grpc.aio

from offramp import errors, forking
from offramp.answers import Answer, SettleResult
from offramp.backoff import LONGEST, Backoff
from offramp.batches import Batch
from offramp.bell import Bell
from offramp.inbox import Inbox
from offramp.options import Options
from offramp.outbox import Extending, Outbox, Settling
from offramp.session import Session
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2
from offramp.verdicts import Verdict

logger = logging.getLogger("offramp")

#: seconds that the sidecar gets to answer what was settled last
GOODBYE = 5.0
#: seconds that it gets if it has not said a word yet: it may be about to, with batches that are better given back
NO_ANSWER = 1.0


class Link:
    """One session after the other, until it is told to leave or is refused.

    Made on an event loop, and lives there. `settle`, `extend`, `drain` and `wanted` may be called by any thread.
    """

    def __init__(self, options: Options, inbox: Inbox) -> None:
        forking.begin()
        self._options = options
        self._inbox = inbox
        inbox.on_wait = self.wanted
        self._outbox = Outbox(options.on_result)
        self._bell = Bell()
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._leaving = asyncio.Event()
        self._session: Session | None = None
        #: on the monotonic clock; None while all is well
        self._lost_at: float | None = None
        self._over = False
        self._giving_up = threading.Lock()
        self._task = self._loop.create_task(self._run())

    @property
    def connected(self) -> bool:
        session = self._session
        return session is not None and session.welcomed

    # For batches

    def settle(self, batch: Batch, settlement: record_pb2.Settlement, *, ours: bool) -> Answer[SettleResult]:
        self.check_process()
        settling = Settling(batch, settlement, ours=ours)
        self._outbox.settle(settling)
        self._news()
        return settling.answer

    def extend(self, batch: Batch, seconds: float) -> Answer[float]:
        self.check_process()
        extension = record_pb2.Extension(lease=batch.lease, lease_for_ms=round(seconds * 1_000))
        extending = Extending(extension, Answer())
        self._outbox.extend(extending)
        self._news()
        return extending.answer

    def _news(self) -> None:
        self._bell.ring()
        # Looked at last: whoever ends the link looks into the outbox after it has set this.
        if self._over:
            self._give_up()

    # For whoever takes batches

    def check_process(self) -> None:
        """Raises `Forked`."""
        forking.check(self._pid)

    def wanted(self) -> None:
        """A worker waits for a batch and there is none."""
        if threading.get_ident() == self._thread:
            if self._session is not None:
                self._session.wanted()
        else:
            self._call_soon(self.wanted)

    def drain(self) -> None:
        """Bring no further batch; takers get None. What is in hand can still be settled.

        Takes effect soon. Signal handlers may call this: they run in the loop's own thread, but behind the loop's back,
        so that it must be woken as if by another thread.
        """
        self._call_soon(self._drain)

    async def leave(self, in_hand: Verdict | None) -> None:
        """Settle what workers still hold as `in_hand` and leave in order. Returns within about `GOODBYE` seconds.

        None says that the workers were interrupted: what they hold is left to the sidecar, which takes it for
        possibly processed.
        """
        self._drain()
        patience = GOODBYE if self.connected else NO_ANSWER
        if self._session is not None:
            self._session.leave(in_hand)
        try:
            await asyncio.wait({self._task}, timeout=patience)
            if not self._task.done():
                logger.warning("the sidecar did not answer within %g seconds; leaving without", patience)
        finally:
            self._task.cancel()
        await asyncio.wait({self._task})

    def _drain(self) -> None:
        if not self._leaving.is_set():
            self._leaving.set()
            self._inbox.close()
            if self._session is not None:
                self._session.drain()

    def _call_soon(self, call: Callable[[], None]) -> None:
        # A loop that is closed has no batches, and nothing to drain.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    # Staying connected

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            await self._stay_connected()
        except Exception as error:
            failure = error
            if self._leaving.is_set():
                logger.warning("the connection to the sidecar ended badly: %s", error)
        finally:
            self._over = True
            self._inbox.close(failure)
            self._give_up()

    async def _stay_connected(self) -> None:
        backoff = Backoff()
        while not self._leaving.is_set():
            session = self._session = Session(
                self._options, self, self._inbox, self._outbox, self._bell, self._on_welcome
            )
            try:
                await session.run()
                trouble = "the sidecar ended the stream"
            except grpc.aio.AioRpcError as error:
                refusal = errors.refusal(error.code(), error.details() or "", self._options.target)
                if refusal is not None:
                    raise refusal from error
                trouble = error.details() or error.code().name
            except errors.Unavailable as error:
                trouble = str(error)
            finally:
                self._session = None
            if self._leaving.is_set():
                return
            self._on_loss(trouble, session.lasted)
            if session.lasted > LONGEST:
                backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next()):
                    await self._leaving.wait()

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        where = (self._options.subscription, self._options.target, welcome.sidecar_version)
        if self._lost_at is None:
            logger.info("%s: connected to the sidecar at %s (version %s)", *where)
        else:
            away = time.monotonic() - self._lost_at
            logger.info("%s: connected to the sidecar at %s (version %s) after %.1f seconds", *where, away)
            self._lost_at = None

    def _on_loss(self, trouble: str, lasted: float) -> None:
        """One line for each time that the sidecar is away, however often it is tried."""
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            what = "lost the sidecar" if lasted else "cannot reach the sidecar"
            logger.warning(
                "%s: %s at %s: %s; trying until it is there",
                self._options.subscription,
                what,
                self._options.target,
                trouble,
            )

    def _give_up(self) -> None:
        with self._giving_up:
            self._outbox.give_up("the connection is closed")

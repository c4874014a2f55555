"""One session with the sidecar: a Consume stream, from hello to its end, and further ones that resume it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable

import grpc.aio

from offramp._internal.credit import CreditControl
from offramp._internal.inbox import Inbox
from offramp._internal.outbox import Outbox, Wakeup
from offramp.answers import Answer, SettleResult
from offramp.batch import Batch, Settler
from offramp.channel import Metadata
from offramp.errors import Unavailable
from offramp.options import Options
from offramp.outcomes import RELEASE, Outcome
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2

logger = logging.getLogger("offramp")

_METHOD = "/offramp.v1.ConsumerService/Consume"
#: for a sidecar that does not say what it accepts
_DEFAULT_LIMITS = pb.Limits(max_request_bytes=4 << 20, max_request_entries=1_000)
#: seconds between requests, in which settlements of other workers gather: a request costs as much as many settlements
_GATHER_INTERVAL = 0.001
#: with less credit than this, too few settlements gather to be worth the wait
_GATHER_CREDIT = 64

_NOTICES = {
    pb.NOTICE_KIND_DRAINING: "the sidecar is stopping; what is in hand can still be settled",
    pb.NOTICE_KIND_REVOKED: "lanes move to another sidecar",
    pb.NOTICE_KIND_PAUSED: "the subscription is paused",
    pb.NOTICE_KIND_RESUMED: "the subscription is resumed",
}

# Requests are encoded here already.
Consume = grpc.aio.StreamStreamMultiCallable[bytes, pb.ConsumeResponse]
Call = grpc.aio.StreamStreamCall[bytes, pb.ConsumeResponse]


class Session:
    """One task reads the stream and one writes it: two concurrent writes would break it.

    Settlements outlive a session, in the outbox; the batches that it delivered do not. So these settle through their
    session, which counts them, and by `settler`, which sends.

    `run` is called for each connection. After one that broke, `may_resume` says whether to call it again; if not, and
    in the end, `end` is called.
    """

    def __init__(
        self,
        options: Options,
        settler: Settler,
        inbox: Inbox,
        outbox: Outbox,
        wakeup: Wakeup,
        on_welcome: Callable[[pb.Welcome], None],
    ) -> None:
        self._options = options
        self._on_welcome = on_welcome
        self._settler = settler
        self._inbox = inbox
        self._outbox = outbox
        self._wakeup = wakeup
        self._control = CreditControl(options.credit, options.waiting_time)
        #: batches that were delivered and are not settled, by lease. Threads that settle remove theirs, so whoever
        #: iterates takes a copy
        self._unsettled: dict[bytes, Batch] = {}
        #: from the sidecar's welcome; empty before it
        self._id = b""
        #: seconds for which the sidecar waits for this process after a connection was lost
        self._grace = 0.0
        self._grace_timer: asyncio.TimerHandle | None = None
        #: leases that were in hand when the connection was lost
        self._held_leases: set[bytes] = set()
        #: seconds for which batches were held that were settled since the writer last looked, if it must know
        self._held: deque[float] = deque()
        self._call: Call | None = None
        self._welcomed = asyncio.Event()
        #: on the monotonic clock
        self._welcomed_at = 0.0
        self._limits = _DEFAULT_LIMITS
        #: the credit that the sidecar was last given
        self._sent_credit = self._control.credit
        self._draining = False
        self._sent_draining = False
        #: end the stream once everything is sent
        self._half_close = False
        #: cancel the stream once everything is answered
        self._cut_when_answered = False
        self._cut = False
        self._patience_timer: asyncio.TimerHandle | None = None
        self._warned = False

    @property
    def welcomed(self) -> bool:
        return self._welcomed.is_set()

    @property
    def lasted(self) -> float:
        """Seconds since the latest connection's welcome; 0 without one."""
        return time.monotonic() - self._welcomed_at if self._welcomed_at else 0.0

    async def run(self) -> None:
        """Returns when the stream has ended in order. Raises `grpc.aio.AioRpcError`, `ProtocolBroken`, and
        `Unavailable` if a credentials file cannot be used now."""
        self._welcomed_at = 0.0
        self._sent_credit = 0 if self._draining else self._control.credit
        self._sent_draining = False
        try:
            async with self._open() as channel:
                consume: Consume = channel.stream_stream(_METHOD, None, pb.ConsumeResponse.FromString)
                self._call = call = consume(metadata=self._metadata())
                await self._read(call)
        except asyncio.CancelledError:
            # gRPC raises this in the reader of a cancelled call, too: only the task's own cancellation goes on.
            task = asyncio.current_task()
            if not self._cut or (task is not None and task.cancelling()):
                raise
        finally:
            self._call = None
            self._welcomed.clear()
            self._outbox.on_disconnect()

    # The files were good when the options were made, but may be being rewritten now: that is worth a retry.

    def _open(self) -> grpc.aio.Channel:
        try:
            return self._options.open_aio(self._options.max_message_bytes)
        except ValueError as error:
            raise Unavailable(str(error)) from error

    def _metadata(self) -> Metadata:
        try:
            return self._options.metadata()
        except ValueError as error:
            raise Unavailable(str(error)) from error

    async def _read(self, call: Call) -> None:
        writer = asyncio.create_task(self._write(call))
        try:
            while isinstance(response := await call.read(), pb.ConsumeResponse):
                self._on_response(response)
        finally:
            writer.cancel()
            (failure,) = await asyncio.gather(writer, return_exceptions=True)
            if isinstance(failure, Exception):
                raise failure

    # Losing connections

    def may_resume(self) -> bool:
        """The connection was lost, and not ended by the sidecar. Returns whether the sidecar waits for another one."""
        if self._welcomed_at:
            self._held_leases = {*self._unsettled, *self._outbox.leases()}
            if self._grace and not self._sent_draining:
                self._grace_timer = asyncio.get_running_loop().call_later(self._grace, self._on_grace_over)
        return self._grace_timer is not None and len(self._held_leases) <= self._limits.max_request_entries

    def end(self) -> None:
        """The session is over, and its leases with it."""
        if self._patience_timer is not None:
            self._patience_timer.cancel()
        self._stop_waiting()
        self._lose_batches()

    def _on_grace_over(self) -> None:
        self._grace_timer = None
        # While it connects, the sidecar may have been told already what is held here: its welcome decides.
        if self._call is None:
            self._id = b""
            self._lose_batches()

    def _stop_waiting(self) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def _lose_batches(self) -> None:
        """Drops waiting batches, and marks those in hand as lost."""
        self._inbox.take_back()
        for batch in list(self._unsettled.values()):
            batch.lost = True
        self._unsettled.clear()
        self._outbox.on_session_end()

    # For batches, from any thread

    def ack(self, batch: Batch, *, automatic: bool) -> Answer[SettleResult]:
        self._on_settled(batch)
        return self._settler.ack(batch, automatic=automatic)

    def settle(self, batch: Batch, settlement: record_pb2.Settlement, *, automatic: bool) -> Answer[SettleResult]:
        if batch.settled:
            self._on_settled(batch)
        return self._settler.settle(batch, settlement, automatic=automatic)

    def extend(self, batch: Batch, seconds: float) -> Answer[float]:
        return self._settler.extend(batch, seconds)

    def _on_settled(self, batch: Batch) -> None:
        """To be called before the writer is woken, which looks at `_held`."""
        if self._unsettled.pop(batch.lease, None) is not None and self._control.shrunk and batch.taken_at:
            self._held.append(time.monotonic() - batch.taken_at)

    # Closing

    def drain(self) -> None:
        """Ask for no further batch and give back those that no worker has taken."""
        self._draining = True
        self._give_back(self._inbox.take_back())
        self._wakeup.wake()

    def close(self, in_hand: Outcome | None) -> None:
        """Settle what is in hand with `in_hand`, and end the stream once everything is sent. None: cut the stream once
        everything is answered, so that the sidecar treats what is in hand as possibly processed."""
        self.drain()
        if in_hand is not None:
            for batch in list(self._unsettled.values()):
                batch.settle_rest(in_hand, automatic=True)
        if in_hand is None and self._in_hand():
            self._cut_when_answered = True
            self._cut_if_answered()
        else:
            self._half_close = True
        self._wakeup.wake()

    def _cut_if_answered(self) -> None:
        if self._cut_when_answered and self._outbox.answered_all and self._call is not None:
            self._cut = True
            self._call.cancel()

    # Writing

    async def _write(self, call: Call) -> None:
        try:
            await call.write(self._hello().SerializeToString())
            # The limits in the welcome hold for everything after the hello.
            await self._welcomed.wait()
            if self._grace:
                # Says that the welcome is here: only then the sidecar waits for this process.
                await call.write(b"")
            while True:
                while (request := self._next_request()) is not None:
                    await call.write(request)
                    if self._options.credit >= _GATHER_CREDIT:
                        await asyncio.sleep(_GATHER_INTERVAL)
                if self._half_close:
                    await call.done_writing()
                    return
                await self._wakeup.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream has ended; its reader gets the reason.
            return
        except Exception:
            call.cancel()
            raise

    def _hello(self) -> pb.ConsumeRequest:
        # A thread may have settled a batch since then, and be about to queue it.
        held = self._held_leases | self._outbox.leases() if self._id else ()
        return self._options.hello(self._sent_credit, self._id, held)

    def _next_request(self) -> bytes | None:
        while self._held:
            self._control.settled(self._held.popleft())
        # `draining` and `credit` go alone, and before settlements: else what is given back would be sent here again.
        if self._draining and not self._sent_draining:
            self._sent_draining = True
            return pb.ConsumeRequest(draining=True).SerializeToString()
        if self._sent_credit != self._control.credit and not self._draining:
            self._sent_credit = self._control.credit
            return pb.ConsumeRequest(credit=self._options.as_credit(self._sent_credit)).SerializeToString()
        return self._outbox.next_request(self._limits)

    # Reading

    def _on_response(self, response: pb.ConsumeResponse) -> None:
        if response.HasField("welcome"):
            self._begin(response.welcome)
        if response.results:
            self._outbox.on_results(response.results)
            if not self._outbox.empty:
                # What was refused is settled in another way.
                self._wakeup.wake()
            self._cut_if_answered()
        if response.extended:
            self._outbox.on_extended(response.extended)
        for notice in response.notices:
            self._on_notice(notice)
        if response.batches:
            self._on_batches(response.batches)

    def _begin(self, welcome: pb.Welcome) -> None:
        limits = welcome.limits
        self._limits = limits if limits.max_request_bytes and limits.max_request_entries else _DEFAULT_LIMITS
        self._stop_waiting()
        if self._id and self._id != welcome.session:
            # The sidecar was restarted, or has waited for long enough.
            self._lose_batches()
        self._id, self._grace = welcome.session, welcome.resume_ms / 1_000
        self._welcomed_at = time.monotonic()
        self._welcomed.set()
        self._on_welcome(welcome)

    def _on_batches(self, messages: Iterable[record_pb2.Batch]) -> None:
        now = time.monotonic()
        batches = [Batch(message, self, now) for message in messages]
        self._unsettled.update((batch.lease, batch) for batch in batches)
        if self._draining:
            # They crossed with our `draining`.
            self._give_back(batches)
            return
        for batch in batches:
            self._inbox.put(batch)
        self._watch_patience()

    def _on_notice(self, notice: pb.Notice) -> None:
        if notice.kind == pb.NOTICE_KIND_REVOKED:
            if not notice.settle_for_ms:
                for lease in notice.leases:
                    if (batch := self._unsettled.get(lease)) is not None:
                        batch.lost = True
            # Those that no worker has taken are not started any more.
            self._give_back(self._inbox.take_back(notice.leases))
        what = _NOTICES.get(notice.kind)
        if what is not None:
            left = f"; {notice.settle_for_ms / 1_000:g} seconds are left to settle" if notice.settle_for_ms else ""
            detail = f": {notice.detail}" if notice.detail else ""
            logger.info("%s: %s%s%s", self._options.subscription, what, left, detail)

    # Credit

    def on_wait(self) -> None:
        """A worker waits for a batch and there is none."""
        control = self._control
        # The sent credit may be more than what is wanted by now, and about to be withdrawn.
        if len(self._unsettled) < self._sent_credit == control.credit == control.limit:
            return
        in_hand = self._in_hand()
        control.grow(in_hand, self._inbox.waiting())
        if control.credit != self._sent_credit:
            self._wakeup.wake()
        if in_hand >= control.limit and not self._warned:
            self._warned = True
            logger.warning(
                "%s: %d batches are in hand and unsettled, which is all that was asked for: no further one will come "
                "until one of them is settled",
                self._options.subscription,
                in_hand,
            )

    def _in_hand(self) -> int:
        """Batches that workers have taken and not settled."""
        return len(self._unsettled) - len(self._inbox)

    def _watch_patience(self) -> None:
        """Schedules the check that no batch waits longer than `patience`."""
        oldest = self._inbox.oldest()
        if self._patience_timer is None and oldest is not None:
            left = oldest + self._control.patience - time.monotonic()
            self._patience_timer = asyncio.get_running_loop().call_later(max(left, 0.0), self._check_patience)

    def _check_patience(self) -> None:
        self._patience_timer = None
        oldest = self._inbox.oldest()
        if oldest is not None and time.monotonic() - oldest >= self._control.patience:
            in_hand = self._in_hand()
            waited = self._inbox.take_back()
            self._control.shrink(in_hand)
            self._give_back(waited)
            logger.debug("%s: gave back %d batches that no worker took", self._options.subscription, len(waited))
        self._watch_patience()

    def _give_back(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            batch.settle_rest(RELEASE, automatic=True)

"""One Consume stream, from hello to its end."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import grpc.aio

from offramp.batches import Batch, Desk
from offramp.bell import Bell
from offramp.channel import Metadata
from offramp.errors import Unavailable
from offramp.flow import Flow
from offramp.inbox import Inbox
from offramp.options import Options
from offramp.outbox import Outbox
from offramp.v1 import consumer_pb2 as pb
from offramp.v1 import record_pb2
from offramp.verdicts import RELEASE, Verdict

logger = logging.getLogger("offramp")

_METHOD = "/offramp.v1.ConsumerService/Consume"
#: bytes of a request; of a sidecar that does not say what it takes
_REQUEST_BYTES = 4 << 20
#: seconds between requests, in which settlements of other workers gather. A request costs as much as many settlements
_GATHER = 0.001
#: with fewer batches than this too few gather: waiting for them would cost more than their requests
_MANY = 64

Consume = grpc.aio.StreamStreamMultiCallable[pb.ConsumeRequest, pb.ConsumeResponse]
Call = grpc.aio.StreamStreamCall[pb.ConsumeRequest, pb.ConsumeResponse]


class Session:
    """One task reads the stream and one writes it: two concurrent writes would break it.

    What is said outlives a session, and is in the outbox; batches that it brought do not.
    """

    def __init__(
        self,
        options: Options,
        desk: Desk,
        inbox: Inbox,
        outbox: Outbox,
        bell: Bell,
        on_welcome: Callable[[pb.Welcome], None],
    ) -> None:
        self._options = options
        self._on_welcome = on_welcome
        self._desk = desk
        self._inbox = inbox
        self._outbox = outbox
        self._bell = bell
        self._flow = Flow(options.credit, options.waiting_time)
        #: batches that came and are not settled, by lease
        self._held: dict[bytes, Batch] = {}
        self._call: Call | None = None
        self._welcomed = asyncio.Event()
        #: on the monotonic clock
        self._welcomed_at = 0.0
        self._request_bytes = _REQUEST_BYTES
        #: what the sidecar was last asked for
        self._asked = self._flow.ask
        self._draining = False
        self._said_draining = False
        self._half_close = False
        self._abandon = False
        self._cut = False
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False

    @property
    def welcomed(self) -> bool:
        return self._welcomed.is_set()

    @property
    def lasted(self) -> float:
        """Seconds since the sidecar's welcome; 0 without one."""
        return time.monotonic() - self._welcomed_at if self.welcomed else 0.0

    async def run(self) -> None:
        """Returns when the stream has ended in order. Raises `grpc.aio.AioRpcError`, `ProtocolBroken`, and
        `Unavailable` if a file that proves who calls cannot be used."""
        try:
            async with self._open() as channel:
                consume: Consume = channel.stream_stream(
                    _METHOD, pb.ConsumeRequest.SerializeToString, pb.ConsumeResponse.FromString
                )
                self._call = call = consume(metadata=self._proof())
                await self._converse(call)
        except asyncio.CancelledError:
            # gRPC tells the reader of its own cancelled call in the same way as a task that is to end.
            task = asyncio.current_task()
            if not self._cut or (task is not None and task.cancelling()):
                raise
        finally:
            self._end()

    # The files were good when the options were made. Somebody may be writing them anew.

    def _open(self) -> grpc.aio.Channel:
        try:
            return self._options.open_aio(self._options.max_message_bytes)
        except ValueError as error:
            raise Unavailable(str(error)) from error

    def _proof(self) -> Metadata:
        try:
            return self._options.metadata()
        except ValueError as error:
            raise Unavailable(str(error)) from error

    async def _converse(self, call: Call) -> None:
        writer = asyncio.create_task(self._write(call))
        try:
            while isinstance(response := await call.read(), pb.ConsumeResponse):
                self._receive(response)
        finally:
            writer.cancel()
            (failure,) = await asyncio.gather(writer, return_exceptions=True)
            if isinstance(failure, Exception):
                raise failure

    def _end(self) -> None:
        """Leases end with their session: what waited is forgotten, what is in hand is known to be lost."""
        if self._timer is not None:
            self._timer.cancel()
        self._inbox.take_back()
        for batch in self._held.values():
            batch.lost = True
        self._held.clear()
        self._outbox.disconnected()

    # Leaving

    def drain(self) -> None:
        """Ask for no further batch and give back those that nobody has taken."""
        self._draining = True
        self._give_back(self._inbox.take_back())
        self._bell.ring()

    def leave(self, in_hand: Verdict | None) -> None:
        """Settle what is in hand so, and end the stream once everything is said. None: cut the stream once everything
        is answered, so that the sidecar takes what is in hand for possibly processed."""
        self.drain()
        if in_hand is not None:
            for batch in list(self._held.values()):
                batch.settle_rest(in_hand, ours=True)
        if in_hand is None and self._in_hand():
            self._abandon = True
            self._check_abandoned()
        else:
            self._half_close = True
        self._bell.ring()

    def _check_abandoned(self) -> None:
        if self._abandon and self._outbox.answered_all and self._call is not None:
            self._cut = True
            self._call.cancel()

    # Writing

    async def _write(self, call: Call) -> None:
        try:
            await call.write(self._options.hello(self._asked))
            # Its limits hold for all that follows.
            await self._welcomed.wait()
            while True:
                while (request := self._next_request()) is not None:
                    await call.write(request)
                    if self._options.credit >= _MANY:
                        await asyncio.sleep(_GATHER)
                if self._half_close:
                    await call.done_writing()
                    return
                await self._bell.heard()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream is over, and its reader learns why.
            return
        except Exception:
            call.cancel()
            raise

    def _next_request(self) -> pb.ConsumeRequest | None:
        # Each alone and before what is given back, or else that would be sent to this process again.
        if self._draining and not self._said_draining:
            self._said_draining = True
            return pb.ConsumeRequest(draining=True)
        if self._asked != self._flow.ask and not self._draining:
            self._asked = self._flow.ask
            return pb.ConsumeRequest(credit=self._options.as_credit(self._asked))
        return self._outbox.next_request(self._request_bytes, self._on_settled)

    def _on_settled(self, batch: Batch) -> None:
        if self._held.pop(batch.lease, None) is not None and batch.taken_at:
            self._flow.settled(time.monotonic() - batch.taken_at)

    # Reading

    def _receive(self, response: pb.ConsumeResponse) -> None:
        if response.HasField("welcome"):
            self._welcome(response.welcome)
        if response.results:
            self._outbox.answered(response.results)
            self._check_abandoned()
        if response.extended:
            self._outbox.extended(response.extended)
        for notice in response.notices:
            self._notice(notice)
        if response.batches:
            self._take_in(response.batches)

    def _welcome(self, welcome: pb.Welcome) -> None:
        self._request_bytes = welcome.limits.max_request_bytes or _REQUEST_BYTES
        self._welcomed_at = time.monotonic()
        self._welcomed.set()
        self._on_welcome(welcome)

    def _take_in(self, messages: Iterable[record_pb2.Batch]) -> None:
        now = time.monotonic()
        came = []
        for message in messages:
            batch = Batch(message, self._desk, now)
            self._held[batch.lease] = batch
            came.append(batch)
        if self._draining:
            # They crossed with our `draining`.
            self._give_back(came)
            return
        for batch in came:
            self._inbox.put(batch)
        self._watch()

    def _notice(self, notice: pb.Notice) -> None:
        if notice.kind == pb.NOTICE_KIND_REVOKED:
            for lease in notice.leases:
                if (batch := self._held.get(lease)) is not None:
                    batch.lost = True
            self._give_back(self._inbox.take_back(notice.leases))
        what = _NOTICES.get(notice.kind)
        if what is not None:
            logger.info("%s: %s%s", self._options.subscription, what, f": {notice.detail}" if notice.detail else "")

    # Flow

    def wanted(self) -> None:
        """A worker waits for a batch and there is none."""
        # What was written last may be more than what is wanted by now, and about to be taken back.
        if len(self._held) < self._asked == self._flow.ask == self._flow.credit:
            return
        in_hand = self._in_hand()
        self._flow.wanted(in_hand, self._inbox.waiting())
        if self._flow.ask != self._asked:
            self._bell.ring()
        if in_hand >= self._flow.credit and not self._warned:
            self._warned = True
            logger.warning(
                "%s: %d batches are in hand and unsettled, which is all that was asked for: no further one will come "
                "until one of them is settled",
                self._options.subscription,
                in_hand,
            )

    def _in_hand(self) -> int:
        return sum(not batch.settled for batch in self._held.values()) - len(self._inbox)

    def _watch(self) -> None:
        """See to it that no batch waits longer than it may."""
        oldest = self._inbox.oldest()
        if self._timer is None and oldest is not None:
            left = oldest + self._flow.patience - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(left, 0.0), self._check_patience)

    def _check_patience(self) -> None:
        self._timer = None
        oldest = self._inbox.oldest()
        if oldest is not None and time.monotonic() - oldest >= self._flow.patience:
            in_hand = self._in_hand()
            waited = self._inbox.take_back()
            self._flow.stalled(in_hand)
            self._give_back(waited)
            logger.debug("%s: gave back %d batches that no worker took", self._options.subscription, len(waited))
        self._watch()

    def _give_back(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            batch.settle_rest(RELEASE, ours=True)


_NOTICES = {
    pb.NOTICE_KIND_DRAINING: "the sidecar is stopping; what is in hand can still be settled",
    pb.NOTICE_KIND_REVOKED: "lanes moved to another sidecar; batches of theirs are lost",
    pb.NOTICE_KIND_PAUSED: "the subscription is paused",
    pb.NOTICE_KIND_RESUMED: "the subscription goes on",
}

"""What one group receives from one lane."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nats import errors
from nats.aio.msg import Msg

from sidecar.brokers.nats import messages
from sidecar.brokers.nats.connection import Connection, Link, NoResponders, Request, block_of, status_of
from sidecar.brokers.nats.limits import ConsumerLimits, troubles_of
from sidecar.brokers.queue.driver import HandlesLost, Received, Receiver
from sidecar.model.errors import BrokerError, NotFound, Unavailable
from sidecar.observability.logs import Log

log = Log("nats")

_ACK, _NAK, _PROGRESS = b"+ACK", b"-NAK", b"+WPI"
_NANOSECONDS = 1_000_000_000
#: seconds between looks at the stream and the consumer
_LOOK_EVERY = 5.0
#: seconds that closing waits for what is on its way
_CLOSE_TIMEOUT = 1.0


class NatsReceiver(Receiver[str]):
    """A handle is the subject that a message is acked on: it outlives connections and this sidecar, and is void only
    once the consumer is gone. The server takes the ack of an earlier delivery, too.

    Each `receive` asks for what is there, and if that is nothing, for one message that it waits for. So the server
    never has an open pull of many, which would swallow messages if this process stood still.
    """

    first = False

    def __init__(
        self,
        connection: Connection,
        stream: str,
        consumer: str,
        subject: str,
        plain_subject: str,
        info: Mapping[str, Any],
        reached: Callable[[int], None],
    ) -> None:
        """`subject`: what the consumer filters, empty if it reads a whole stream. `plain_subject`: that of messages
        whose subject needs no mention. `info`: what the server says of the consumer. `reached` is told below which
        sequence of the stream everything is settled."""
        self.troubles: dict[str, str] = {}
        self.lost = 0
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        self._subject = subject
        self._plain_subject = plain_subject
        self._tell_reached = reached
        #: when the server made the consumer
        self._created = info["created"]
        self._of = ConsumerLimits.of(info["config"])
        self.limits = self._of.limits
        self.renew_every = self._of.lease / 3
        #: the consumer filters: sequences have gaps
        self._filters = bool(info["config"].get("filter_subject") or info["config"].get("filter_subjects"))
        #: sequences of the last delivery: by consumer, by stream
        self._last = info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]
        #: with the time of arrival
        self._arrived: deque[tuple[float, Msg]] = deque()
        self._link: Link | None = None
        self._subscription: Any = None
        self._inbox = ""
        self._pulls = 0
        #: how many messages the last pull has brought, and the status that ended it
        self._count = 0
        self._status: tuple[int, str] | None = None
        self._news = asyncio.Event()
        self._stopped = False
        self._next_look = 0.0

    # Receiving

    async def receive(self, records: int, size: int, timeout: float) -> Sequence[Received[str]]:
        if self._now() >= self._next_look:
            await self._look()
        self._drop_expired()
        if not self._arrived and not self._stopped:
            await self._pull(records, size, timeout)
        found: list[Received[str]] = []
        while self._arrived and len(found) < records:
            _, message = self._arrived.popleft()
            place = messages.place_of(message.reply)
            self._count_lost(place)
            found.append(
                messages.received(
                    message.reply, place, message.subject, self._plain_subject, block_of(message), message.data
                )
            )
        return found

    async def _pull(self, records: int, size: int, timeout: float) -> None:
        """Returns once something has arrived, or after the timeout."""
        batch = max(1, int(min(records, self._of.batch)))
        code, text = await self._ask({"batch": batch, "max_bytes": int(min(size, self._of.size)), "no_wait": True}, 0.0)
        if self._arrived or self._stopped:
            return
        wait = min(timeout, self._of.wait)
        # The one message that may be larger than all that is wanted.
        if code == 409 and "maxbytes" in text.lower().replace(" ", ""):
            await self._ask({"batch": 1, "no_wait": True}, 0.0)
        else:
            await self._ask({"batch": 1, "expires": int(wait * _NANOSECONDS)}, wait)

    async def _ask(self, pull: Mapping[str, Any], wait: float) -> tuple[int, str]:
        """Sends a pull and waits for its end. Returns the status that ended it; 0: all that was asked for came."""
        link = await self._attach()
        self._pulls += 1
        self._count, self._status = 0, None
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await link.send(self._doing, subject, json.dumps(pull).encode(), f"{self._inbox}.{self._pulls}")
        try:
            async with asyncio.timeout(wait + self._connection.timeout):
                while self._count < pull["batch"] and self._status is None:
                    if self._stopped and wait:
                        break
                    link.raise_if_denied(subject, self._doing)
                    if not link.is_open:
                        raise Unavailable(f"NATS: cannot {self._doing}: the connection was lost")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise link.translate(error, self._doing) from error
        status = self._status or (0, "")
        if not self._arrived:
            await self._raise_for(status)
        return status

    async def _raise_for(self, status: tuple[int, str]) -> None:
        code, text = status
        said = text.lower()
        if code == 503 or (code == 409 and "deleted" in said):
            # It says whether the consumer is gone, or JetStream is only not up yet.
            await self._look()
            raise Unavailable(f"NATS: cannot {self._doing}: JetStream is not up")
        ended = code in (0, 404, 408) or "maxbytes" in said.replace(" ", "") or "completed" in said
        if not ended:
            raise Unavailable(f"NATS: cannot {self._doing}: the server says {code} {text}")

    async def _attach(self) -> Link:
        """The connection, with a subscription on it for what is pulled."""
        link = await self._connection.link()
        if link is not self._link:
            self._leave()
            self._inbox = link.new_inbox()
            try:
                self._subscription = await link.subscribe(f"{self._inbox}.*", self._came)
            except (errors.Error, OSError) as error:
                raise link.translate(error, self._doing) from error
            self._link = link
            link.listeners.add(self._news.set)
        return link

    def _leave(self) -> None:
        if self._link is not None:
            self._link.listeners.discard(self._news.set)
        self._link = self._subscription = None

    async def _came(self, message: Msg) -> None:
        status = status_of(message)
        if status[0] == 0:
            self._count += 1
            self._arrived.append((self._now(), message))
        elif message.subject == f"{self._inbox}.{self._pulls}":
            self._status = status
        self._news.set()

    def _drop_expired(self) -> None:
        """What has waited here for too long comes again, to anybody."""
        while self._arrived and self._arrived[0][0] + self._of.lease <= self._now():
            self._arrived.popleft()

    async def pause(self) -> None:
        """There is never credit for more than one message, and for no longer than a `receive`."""

    async def stop(self) -> None:
        """Takes the open pull back: it would get what is returned from now on."""
        self._stopped = True
        subscription, link = self._subscription, self._link
        if subscription is not None and link is not None and link.is_open:
            with contextlib.suppress(errors.Error, BrokerError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    # Returns when all that the server had sent is here.
                    await subscription.drain()
                    # The server drops a pull that nobody waits for any more when it counts them. Otherwise it tries to
                    # deliver the first message to it that is returned, and puts that behind the others.
                    await link.api(self._doing, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        self._news.set()

    # What the server does by itself

    def _count_lost(self, place: messages.Place) -> None:
        """Between two neighbours of a consumer without a filter nothing is left out but what was removed."""
        consumer_sequence, stream_sequence = self._last
        if place.deliveries == 1 and not self._filters:
            if place.consumer_sequence == consumer_sequence + 1:
                self.lost += max(0, place.stream_sequence - stream_sequence - 1)
            self._last = place.consumer_sequence, place.stream_sequence
        elif place.consumer_sequence == consumer_sequence + 1:
            self._last = place.consumer_sequence, stream_sequence

    async def _look(self) -> None:
        """Raises `HandlesLost` if the consumer is gone."""
        self._next_look = self._now() + _LOOK_EVERY
        link = await self._connection.link()
        consumer = await self._info(link)
        stream = await link.api(self._doing, f"STREAM.INFO.{self._stream}")
        self.troubles = troubles_of(stream, consumer, datetime.now(UTC))
        self._tell_reached(consumer["ack_floor"]["stream_seq"] + 1)

    async def _info(self, link: Link) -> dict[str, Any]:
        """What the server says of the consumer. Raises `HandlesLost` if it is gone, or another one of the same name."""
        try:
            consumer = await link.api(self._doing, f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        except NotFound as error:
            raise HandlesLost(str(error)) from error
        if consumer["created"] != self._created:
            raise HandlesLost(f"NATS: consumer {self._consumer} of stream {self._stream} was made anew")
        return consumer

    # Settling

    async def ack(self, handles: Sequence[str], cumulative: int) -> Sequence[int]:
        """The acks are not answered but for the last: the server has those before it, as all go over one connection."""
        doing = f"ack messages of {self._stream}"
        link = await self._connection.link()
        # In a stream that was made anew, the same handles stand for other messages.
        await self._info(link)
        for handle in handles[:-1]:
            await link.send(doing, handle, _ACK)
        try:
            await link.ask(doing, [Request(handles[-1], _ACK)])
        except NoResponders:
            await self._look()
            raise
        if self.sole_reader:
            await self._delete_settled(link)
        return ()

    async def _delete_settled(self, link: Link) -> None:
        """Nobody else reads it."""
        with contextlib.suppress(BrokerError):
            consumer = await self._info(link)
            purge = {"seq": consumer["ack_floor"]["stream_seq"] + 1}
            await link.api(
                f"delete what is settled in {self._stream}",
                f"STREAM.PURGE.{self._stream}",
                purge | ({"filter": self._subject} if self._subject else {}),
            )

    async def give_back(self, handles: Sequence[str], delay: float) -> None:
        nak = _NAK + b' {"delay": %d}' % int(delay * _NANOSECONDS) if delay else _NAK
        await self._send_all(handles, nak, f"return messages of {self._stream}")

    async def renew(self, handles: Sequence[str]) -> Sequence[str | None]:
        """The server does not say which were not ours any more: they come again, and are known by their refs."""
        await self._send_all(handles, _PROGRESS, f"renew messages of {self._stream}")
        return handles

    async def _send_all(self, handles: Sequence[str], payload: bytes, doing: str) -> None:
        link = await self._connection.link()
        for handle in handles[:-1]:
            await link.send(doing, handle, payload)
        try:
            await link.ask(doing, [Request(handles[-1], payload)])
        except NoResponders:
            await self._look()
            raise

    async def close(self) -> None:
        """Gives back what has arrived and nobody took."""
        if not self._stopped:
            await self.stop()
        if self._arrived and self._link is not None and self._link.is_open:
            # Otherwise it comes again after the ack wait.
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self.give_back([message.reply for _, message in self._arrived], 0.0)
        self._arrived.clear()
        self._leave()

    @property
    def _doing(self) -> str:
        return f"read {self._stream} for consumer {self._consumer}"

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

"""One connected worker process."""

import os
from typing import Any, Protocol

from sidecar.core.state.leases import Lease
from sidecar.model.records import ClientInfo, Credit, Delivery, Notice, SessionEnd
from sidecar.subscription.events import SubscriptionEvents

#: bytes of a response besides the records of its batch: most of it is for the name of a topic
_FRAME_OVERHEAD = 1536


class Consumer(Protocol):
    """Gets the batches of a session. No call blocks or raises."""

    def deliver(self, delivery: Delivery) -> None: ...

    def notify(self, notice: Notice) -> None: ...

    def idle(self) -> None:
        """The session holds no batch any more: its client has received and settled all of them, or they ended."""
        return  # not abstract: only some consumers keep anything


class _NoConsumer(Consumer):
    """The consumer of a session that has ended."""

    def deliver(self, delivery: Delivery) -> None:
        raise AssertionError("delivery to a session that has ended")

    def notify(self, notice: Notice) -> None:
        pass


_NO_CONSUMER = _NoConsumer()


class Session:
    """Made by `Subscription.connect`. Its leases end with it."""

    def __init__(
        self,
        events: SubscriptionEvents,
        consumer: Consumer,
        client: ClientInfo,
        max_message_bytes: int,
        lease: float | None,
        now: float,
        batch_records: int = 0,
    ) -> None:
        self._events = events
        self.consumer = consumer
        self.client = client
        self.id = os.urandom(16)
        self.connected = now
        self.credit = Credit(0)
        self.max_message_bytes = max_message_bytes
        #: seconds that the client asked for; None: as long as the settings allow
        self.lease = lease
        #: records of a batch that the client asked for; 0: as many as the settings say
        self.batch_records = batch_records
        self.leases: dict[bytes, Lease[Any]] = {}
        self.unsettled_bytes = 0
        #: it holds a record that must be alone with its worker process
        self.exclusive = False
        #: it was held back for such a record until a timeout, and is not held back again until it holds no batch
        self.isolation_timed_out = False
        #: until then other records come first: it was exclusive for as long
        self.shared_until = 0.0
        #: since when it waits for its client to reconnect; None: it is connected
        self.away_since: float | None = None
        self.ended = False
        self.backpressured = False
        self._stopped = False

    @property
    def unsettled(self) -> int:
        """Leases that it holds."""
        return len(self.leases)

    @property
    def hard_bytes(self) -> int:
        """The largest batch that the client can take."""
        return max(1, self.max_message_bytes - _FRAME_OVERHEAD)

    @property
    def name(self) -> str:
        """For logs and the status."""
        return self.client.name or f"{self.client.language or 'client'}-{self.client.pid}"

    def has_room(self) -> bool:
        if self._stopped or self.backpressured or self.ended or len(self.leases) >= self.credit.batches:
            return False
        if self.away_since is not None:
            return False
        if self.exclusive and self.leases:
            return False
        return self.credit.bytes == 0 or self.unsettled_bytes < self.credit.bytes

    def grant(self, credit: Credit) -> None:
        """Replace the credit, the limit on what is unsettled."""
        self.credit = credit
        self._events.session_changed(self)

    def set_backpressure(self, backpressured: bool) -> None:
        """While its client does not read what was sent, nothing more is delivered."""
        if backpressured is not self.backpressured:
            self.backpressured = backpressured
            self._events.session_changed(self)

    def stop_deliveries(self) -> None:
        """The client drains: deliver nothing more."""
        self._stopped = True
        self._events.session_changed(self)

    def suspend(self, consumer: Consumer, now: float) -> None:
        """The connection is lost: it keeps its leases and gets no further ones. Until it is resumed or ended,
        `consumer` gets its notices."""
        self.consumer, self.away_since = consumer, now
        self._events.session_changed(self)

    def resume(self, consumer: Consumer, client: ClientInfo) -> None:
        """Its client has another connection, whether or not the former one is known to be lost."""
        self.consumer, self.client, self.away_since = consumer, client, None
        self.backpressured = self._stopped = False
        self._events.session_changed(self)

    def end(self, how: SessionEnd) -> None:
        """The session is over. A second call changes nothing."""
        if not self.ended:
            self.ended = True
            self._events.session_ended(self, how)
            if how is not SessionEnd.DETACHED:
                # Leases that have ended refer to their session, but must not keep its connection in memory.
                self.consumer = _NO_CONSUMER

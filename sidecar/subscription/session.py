"""One connected app process, as the subscription sees it."""

import os
from typing import TYPE_CHECKING, Any, Protocol

from sidecar.core.state.leases import Lease
from sidecar.model.records import ClientInfo, Credit, Delivery, Notice, SessionEnd

if TYPE_CHECKING:
    from sidecar.subscription.subscription import Subscription

#: bytes that a response adds around its batches
_FRAME_OVERHEAD = 1024


class Consumer(Protocol):
    """Who a session's batches are handed to. Neither call blocks or raises."""

    def deliver(self, delivery: Delivery) -> None: ...

    def notify(self, notice: Notice) -> None: ...


class _Nobody:
    """After the end of a session and of its leases."""

    def deliver(self, delivery: Delivery) -> None:
        raise AssertionError("a session that ended gets nothing")

    def notify(self, notice: Notice) -> None:
        pass


_NOBODY = _Nobody()


class Session:
    """Made by `Subscription.connect`. Its leases end with it."""

    def __init__(
        self,
        subscription: "Subscription",
        consumer: Consumer,
        client: ClientInfo,
        max_message_bytes: int,
        lease: float | None,
        now: float,
    ) -> None:
        self._subscription = subscription
        self.consumer = consumer
        self.client = client
        self.id = os.urandom(16)
        self.connected = now
        self.credit = Credit(0)
        self.max_message_bytes = max_message_bytes
        #: seconds that the client asked for; None: as long as the session lives
        self.lease = lease
        self.leases: dict[bytes, Lease[Any]] = {}
        self.unsettled_bytes = 0
        #: it holds a record that must be alone with its worker process
        self.exclusive = False
        #: it was held back for one in vain, and is not again before it has nothing in hand
        self.isolation_timed_out = False
        #: until then others go first: one has kept it for as long
        self.shared_until = 0.0
        self.ended = False
        self.backpressured = False
        self._stopped = False

    @property
    def unsettled(self) -> int:
        """Leases in hand."""
        return len(self.leases)

    @property
    def hard_bytes(self) -> int:
        """The largest batch that the client can take."""
        return max(1, self.max_message_bytes - _FRAME_OVERHEAD)

    @property
    def name(self) -> str:
        """For people."""
        return self.client.name or f"{self.client.language or 'client'}-{self.client.pid}"

    def has_room(self) -> bool:
        if self._stopped or self.backpressured or self.ended or len(self.leases) >= self.credit.batches:
            return False
        if self.exclusive and self.leases:
            return False
        return self.credit.bytes == 0 or self.unsettled_bytes < self.credit.bytes

    def grant(self, credit: Credit) -> None:
        """Replace the credit: a ceiling on what is unsettled. May deliver before it returns."""
        self.credit = credit
        self._subscription.session_changed(self)

    def set_backpressure(self, backpressured: bool) -> None:
        """While it is choked nothing more is delivered: its client does not take what there is."""
        if backpressured is not self.backpressured:
            self.backpressured = backpressured
            self._subscription.session_changed(self)

    def stop_deliveries(self) -> None:
        """The client drains: nothing more is delivered."""
        self._stopped = True
        self._subscription.session_changed(self)

    def end(self, how: SessionEnd) -> None:
        """The session is over. Saying so twice is harmless."""
        if not self.ended:
            self.ended = True
            self._subscription.session_ended(self, how)
            if how is not SessionEnd.DETACHED:
                # Leases that ended are remembered, and with them who had them; but not what it had.
                self.consumer = _NOBODY

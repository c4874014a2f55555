"""Sessions that outlive their connection, so that their clients can resume them.

    connected   a stream has the session
    away        the connection was lost: the session keeps its leases and gets no batches, until its client resumes it
                or its time is over

A client must ask for that time, and call over TCP: on a unix socket a lost connection is a dead process. A session
without leases has nothing to keep, and ends with its connection.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sidecar.model.records import Delivery, Notice, NoticeKind, SessionEnd
from sidecar.observability.logs import Log
from sidecar.server.auth.caller import Credentials, credentials, current
from sidecar.server.grpc.consumer import sessions
from sidecar.server.grpc.consumer.pending_notices import PendingNotices
from sidecar.subscription.session import Consumer, Session
from sidecar.subscription.subscription import Subscription

SUPERSEDED = "the client has resumed its session by another call"

log = Log("service")


class Stream(Protocol):
    """The call that has a session."""

    def supersede(self) -> None:
        """Another call has the session now. Returns at once; the call ends soon, and leaves the session alone."""


@dataclass(slots=True)
class _Resumable:
    subscription: Subscription
    session: Session
    stream: Stream
    owner: Credentials
    #: seconds
    grace: float
    #: runs while the session is away
    timer: asyncio.TimerHandle | None = None


class ResumableSessions:
    """Those of one kind, `Consume` or `Open`."""

    def __init__(self, longest: float, on_end: Callable[[Session], None] = lambda _: None) -> None:
        """`longest`: seconds that a session may be away. `on_end` is called with a session that was away for too long,
        before it ends."""
        self._longest = longest
        self._on_end = on_end
        self._resumable: dict[bytes, _Resumable] = {}
        #: sessions that are away
        self.away = 0

    def connected(self, subscription: Subscription, session: Session, stream: Stream, asked_ms: int) -> int:
        """A call has the session. Returns for how many milliseconds it may be away, of those that the client asks
        for."""
        owner = credentials()
        grace = min(asked_ms, int(self._longest * 1_000)) if owner is not None else 0
        if owner is not None and grace:
            self._resumable[session.id] = _Resumable(subscription, session, stream, owner, grace / 1_000)
        return grace

    def claim(self, id_: bytes, subscription: Subscription) -> Session | None:
        """The session with this id, for a call that resumes it: if it is of this subscription and of the same client.
        The call that had it is superseded."""
        one = self._resumable.get(id_)
        if one is None or one.session.ended or one.subscription is not subscription or one.owner != credentials():
            return None
        self._remove(id_)
        one.stream.supersede()
        return one.session

    def keep(self, session: Session, keeper: Consumer) -> bool:
        """The connection of the session is lost. Returns whether the session goes on; then `keeper` gets its
        notices."""
        one = self._resumable.get(session.id)
        # Whoever takes a token away wants its sessions to end.
        if one is None or session.ended or not session.unsettled or current().revoked:
            return False
        one.timer = asyncio.get_running_loop().call_later(one.grace, self._on_timer, one)
        one.stream = _NO_STREAM
        self.away += 1
        one.subscription.suspend(session, keeper)
        log.info(
            "worker connection lost: its session waits to be resumed",
            subscription=one.subscription.settings.name,
            client=session.name,
            leases=session.unsettled,
            seconds=one.grace,
        )
        return True

    def ended(self, session: Session) -> None:
        """The session is over, or about to be."""
        self._remove(session.id)

    def stop(self) -> None:
        """The sidecar stops: nobody can come back."""
        for id_ in [*self._resumable]:
            self._remove(id_)

    def _on_timer(self, one: _Resumable) -> None:
        self._remove(one.session.id)
        self._on_end(one.session)
        sessions.end(one.subscription, one.session, SessionEnd.LOST)

    def _remove(self, id_: bytes) -> None:
        one = self._resumable.pop(id_, None)
        if one is not None and one.timer is not None:
            one.timer.cancel()
            self.away -= 1


class Absence(Consumer):
    """In place of the stream of a session that is away. Keeps the notices that its client would miss; whether the
    subscription is paused or drains is said to whoever resumes."""

    def __init__(self) -> None:
        self.notices = PendingNotices()

    def deliver(self, delivery: Delivery) -> None:
        raise AssertionError("delivery to a session without a connection")

    def notify(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.REVOKED:
            self.notices.add(notice)


class _NoStream:
    """In place of the call of a session that is away: what it held must not stay in memory."""

    def supersede(self) -> None:
        pass


_NO_STREAM = _NoStream()

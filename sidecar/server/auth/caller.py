"""Who makes a call, and what they may do.

A listener's guard sets the caller of each call. Rights are checked where a subscription is looked up, in
`sidecar.server.subscriptions`. What the sidecar does by itself needs no right.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from sidecar.model.errors import Forbidden, Stopping
from sidecar.model.reasons import Reason
from sidecar.settings import ClientSettings, Right

#: in place of a name: every subscription
ALL_SUBSCRIPTIONS = "*"
#: in place of a name: every topic
ALL_TOPICS = "*"


class Caller:
    """Somebody who calls, with their rights by subscription. All calls with one token have the same caller."""

    def __init__(
        self, who: str, rights: Mapping[Right, Iterable[str]], publish_topics: Iterable[str] = (ALL_TOPICS,)
    ) -> None:
        #: in messages: `client "spark"`
        self.who = who
        self._rights = {right: frozenset(names) for right, names in rights.items()}
        self._publish_topics = frozenset(publish_topics)
        self._calls: set[asyncio.Task[object]] = set()
        self._revoked = ""

    @classmethod
    def client(cls, settings: ClientSettings) -> "Caller":
        rights = {right: getattr(settings, right) for right in Right}
        return cls(f'client "{settings.name}"', rights, settings.publish_topics)

    @classmethod
    def with_all(cls, who: str, rights: Iterable[Right], publish_topics: Iterable[str] = (ALL_TOPICS,)) -> "Caller":
        """A caller with these rights for every subscription."""
        return cls(who, dict.fromkeys(rights, (ALL_SUBSCRIPTIONS,)), publish_topics)

    def may(self, right: Right, subscription: str) -> bool:
        names = self._rights.get(right, frozenset())
        return subscription in names or ALL_SUBSCRIPTIONS in names

    def require(self, right: Right, subscription: str) -> None:
        """Raises `Forbidden`, which names the right and the subscription that it is missing for."""
        if self.may(right, subscription):
            return
        which = "every subscription" if subscription == ALL_SUBSCRIPTIONS else f'subscription "{subscription}"'
        has = ", ".join(sorted(self._rights.get(right, ()))) or "none"
        raise Forbidden(
            f"{self.who} lacks the right {right} for {which}; it has that right for: {has}",
            right=right,
            subscription=subscription,
        )

    def require_topic(self, topic: str) -> None:
        """Raises `Forbidden` if this caller may not publish to the topic."""
        if not self._publish_topics & {topic, ALL_TOPICS}:
            allowed = ", ".join(sorted(self._publish_topics)) or "none"
            text = f'{self.who} may not publish to topic "{topic}"; its publish_topics are: {allowed}'
            raise Forbidden(text, right=Right.PUBLISH, topic=topic)

    @property
    def revoked(self) -> bool:
        return bool(self._revoked)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Wraps a call. Raises `Stopping` in it if the caller is revoked meanwhile."""
        if self._revoked:
            # It was revoked between the guard and here.
            raise Stopping(self._revoked, Reason.REVOKED)
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._revoked:
                raise
            task.uncancel()
            raise Stopping(self._revoked, Reason.REVOKED) from None
        finally:
            self._calls.discard(task)

    def revoke(self, why: str) -> None:
        """End all calls of this caller. Clients try again, and the guard refuses them."""
        self._revoked = why
        for task in self._calls:
            task.cancel()


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
_identities: ContextVar[Callable[[], Iterable[bytes] | None]] = ContextVar("identities", default=lambda: None)
_peer: ContextVar[Callable[[], str]] = ContextVar("peer", default=str)
#: how gRPC begins the address of a caller over TCP
_TCP = ("ipv4:", "ipv6:")
_ITSELF = Caller.with_all("the sidecar", Right)


def enter(caller: Caller) -> None:
    """Set the caller of the current call and of the tasks that it starts."""
    _caller.set(caller)


def proven_by(identities: Callable[[], Iterable[bytes] | None]) -> None:
    """How to get the names in the client certificate of the current call, if there is one."""
    _identities.set(identities)


def over(peer: Callable[[], str]) -> None:
    """How to get the address that the current call comes from, as gRPC writes it."""
    _peer.set(peer)


class Credentials(NamedTuple):
    """What a caller has proven: two that are equal are of the same client, whichever of its tokens it presented."""

    who: str
    certificate: tuple[bytes, ...]


def credentials() -> Credentials | None:
    """Those of the current call, if it comes over TCP."""
    if not _peer.get()().startswith(_TCP):
        return None
    return Credentials(current().who, tuple(sorted(_identities.get()() or ())))


def who() -> str:
    """Who makes this call, for the log: by the token, and by the certificate."""
    names = ", ".join(name.decode(errors="replace") for name in _identities.get()() or ())
    return f"{current().who}, certificate of {names}" if names else current().who


def admitted() -> Caller:
    """The caller of this call. Raises `LookupError` if no guard has set one."""
    caller = _caller.get()
    if caller is None:
        raise LookupError("a call has passed no guard")
    return caller


def current() -> Caller:
    """The caller of this call; outside of calls, the sidecar itself."""
    return _caller.get() or _ITSELF

"""Who makes a call, and what they may do.

A listener's guard sets the caller of each call, and whoever resolves a subscription says under which right: see
`service.directory`. What the sidecar does by itself needs no right.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from sidecar.model.errors import Forbidden, Stopping
from sidecar.settings import ClientSettings, Right

#: stands for every subscription
EVERY = "*"


class Caller:
    """One who may call, with rights by subscription. Those who show the same token are the same caller."""

    def __init__(self, who: str, rights: Mapping[Right, Iterable[str]]) -> None:
        #: for people: `client "spark"`
        self.who = who
        self._rights = {right: frozenset(names) for right, names in rights.items()}
        self._calls: set[asyncio.Task[object]] = set()
        self._revoked = ""

    @classmethod
    def client(cls, settings: ClientSettings) -> "Caller":
        return cls(f'client "{settings.name}"', {right: getattr(settings, right) for right in Right})

    @classmethod
    def with_all(cls, who: str, rights: Iterable[Right]) -> "Caller":
        """These rights, for every subscription."""
        return cls(who, dict.fromkeys(rights, (EVERY,)))

    def may(self, right: Right, subscription: str) -> bool:
        names = self._rights.get(right, frozenset())
        return subscription in names or EVERY in names

    def require(self, right: Right, subscription: str) -> None:
        """Raises `Forbidden`, which names the right and the subscription that it is missing for."""
        if self.may(right, subscription):
            return
        which = "every subscription" if subscription == EVERY else f'subscription "{subscription}"'
        has = ", ".join(sorted(self._rights.get(right, ()))) or "none"
        raise Forbidden(f"{self.who} lacks the right {right} for {which}; it has it for: {has}")

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Around a call, which ends with `Stopping` if the caller is revoked meanwhile."""
        if self._revoked:
            # Between the guard and here.
            raise Stopping(self._revoked)
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._revoked:
                raise
            task.uncancel()
            raise Stopping(self._revoked) from None
        finally:
            self._calls.discard(task)

    def revoke(self, why: str) -> None:
        """End what this caller has under way. Clients try again, and are told then that they may not."""
        self._revoked = why
        for task in self._calls:
            task.cancel()


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
_ITSELF = Caller.with_all("the sidecar", Right)


def enter(caller: Caller) -> None:
    """From here on, in this call and in tasks that it starts, it is this one who asks."""
    _caller.set(caller)


def admitted() -> Caller:
    """Who makes this call. Raises `LookupError` if no guard has let anybody in."""
    caller = _caller.get()
    if caller is None:
        raise LookupError("a call came in past the guard")
    return caller


def current() -> Caller:
    """Who asks: the caller of this call or, outside of any, the sidecar itself."""
    return _caller.get() or _ITSELF

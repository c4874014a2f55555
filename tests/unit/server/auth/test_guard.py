"""Who is admitted: a caller with a known token, or one that needs none."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.model.errors import Unauthenticated
from sidecar.server.auth.caller import Caller, admitted
from sidecar.server.auth.guard import Guard
from sidecar.settings import Right
from tests.unit.server.auth.token_kit import NEW, OLD, read


class Details:
    def __init__(self, method: str, *metadata: tuple[str, str | bytes]) -> None:
        self.method = method
        self.invocation_metadata = metadata


def admission(guard: Guard, details: Details) -> Caller | None:
    """The caller that was admitted, or None."""
    seen: list[Caller] = []

    async def go_on(_: Any) -> Any:
        seen.append(admitted())

    proceed: Callable[[Any], Awaitable[Any]] = go_on

    async def body() -> None:
        await guard.intercept_service(proceed, details)  # type: ignore[arg-type]

    asyncio.run(body())
    return seen[0] if seen else None


def test_a_guard_that_was_given_nothing_lets_nobody_in_but_for_health() -> None:
    guard = Guard("listen.tcp", None, None, bytes)
    for metadata in ((), (("authorization", "Bearer x"),), (("authorization", b"\xff"),)):
        assert admission(guard, Details("/offramp.v1.ConsumerService/Fetch", *metadata)) is None
    assert guard.refused == 3
    assert admission(guard, Details("/grpc.health.v1.Health/Check")) is None, "the guard answers it by itself"
    assert guard.refused == 3


def test_a_wrong_token_is_refused_also_where_none_is_needed(tmp_path: Path) -> None:
    held = read(tmp_path, app=OLD)
    local = Caller.with_all("local", Right)
    guard = Guard("listen.socket", lambda: held, local, bytes)
    fetch = "/offramp.v1.ConsumerService/Fetch"
    assert admission(guard, Details(fetch)) is local
    assert admission(guard, Details(fetch, ("authorization", f"Bearer {OLD.decode()}"))) is held.caller(OLD)
    assert admission(guard, Details(fetch, ("authorization", f"Bearer {NEW.decode()}"))) is None
    assert admission(guard, Details(fetch, ("authorization", OLD.decode()))) is None
    with pytest.raises(Unauthenticated):
        guard._identify([("authorization", "Bearer ")])

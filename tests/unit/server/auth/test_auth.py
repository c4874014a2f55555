"""Callers, their rights, and tokens that are added and removed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.model.errors import Forbidden, Stopping, Unauthenticated
from sidecar.server.auth import tokens
from sidecar.server.auth.caller import ALL_SUBSCRIPTIONS, Caller, admitted, current, enter
from sidecar.server.auth.guard import Guard
from sidecar.server.auth.tokens import Tokens
from sidecar.settings import ClientSettings, Right

OLD, NEW, OTHER = b"old-0123456789abcdef", b"new-0123456789abcdef", b"other-0123456789abcdef"


def read(tmp_path: Path, **held: bytes) -> Tokens:
    clients = {}
    for name, content in held.items():
        path = tmp_path / name
        path.write_bytes(content)
        path.chmod(0o600)
        clients[name] = ClientSettings(name=name, token_file=str(path), consume=("orders",))
    return tokens.read(clients)


def found(held: Tokens, token: bytes) -> Caller:
    caller = held.caller(token)
    assert caller is not None
    return caller


def test_a_right_is_for_what_it_names_or_for_everything() -> None:
    one = Caller("one", {Right.CONSUME: ["orders"], Right.ADMIN: [ALL_SUBSCRIPTIONS]})
    assert one.may(Right.CONSUME, "orders")
    assert not one.may(Right.CONSUME, "payments")
    assert not one.may(Right.CONSUME, ALL_SUBSCRIPTIONS)
    assert one.may(Right.ADMIN, "payments")
    assert one.may(Right.ADMIN, ALL_SUBSCRIPTIONS)
    with pytest.raises(Forbidden) as raised:
        one.require(Right.PUBLISH, "orders")
    assert str(raised.value) == 'one lacks the right publish for subscription "orders"; it has that right for: none'


def test_what_the_sidecar_does_by_itself_needs_no_right_and_a_call_needs_a_caller() -> None:
    assert all(current().may(right, "orders") for right in Right)
    with pytest.raises(LookupError):
        admitted()


def test_a_caller_is_that_of_its_call_and_of_what_that_starts() -> None:
    one, other = Caller("one", {}), Caller("other", {})

    async def call(caller: Caller) -> Caller:
        enter(caller)
        await asyncio.sleep(0)
        return await asyncio.create_task(who())

    async def who() -> Caller:
        return admitted()

    async def body() -> None:
        assert await asyncio.gather(call(one), call(other)) == [one, other]

    asyncio.run(body())


def test_tokens_are_found_whole_and_alone(tmp_path: Path) -> None:
    held = read(tmp_path, app=OLD + b"\n" + NEW + b"\n", other=OTHER)
    assert found(held, OLD).who == found(held, NEW).who == 'client "app"'
    assert found(held, OTHER).who == 'client "other"'
    for wrong in (b"", OLD[:-1], OLD + b"x", OLD + b"\n" + NEW, OLD.upper()):
        assert held.caller(wrong) is None
    assert OLD.decode() not in repr(vars(held))


def revoked(caller: Caller) -> bool:
    async def call() -> None:
        with caller.calling():
            pass

    try:
        asyncio.run(call())
    except Stopping:
        return True
    return False


def test_a_rotation_keeps_who_stays_and_revokes_who_is_gone(tmp_path: Path) -> None:
    before = read(tmp_path, app=OLD, other=OTHER)
    old, other = found(before, OLD), found(before, OTHER)
    after = read(tmp_path, app=NEW, other=OTHER)
    assert not after.same_as(before)
    after.replace(before)
    assert revoked(old)
    assert found(after, OTHER) is other
    assert not revoked(other)
    assert after.same_as(read(tmp_path, app=NEW, other=OTHER))


def test_a_token_that_moves_to_another_client_has_the_rights_of_that_one(tmp_path: Path) -> None:
    before = read(tmp_path, app=OLD, other=OTHER)
    after = read(tmp_path, app=OTHER, other=OLD)
    after.replace(before)
    assert found(after, OLD).who == 'client "other"'
    assert found(after, OTHER).who == 'client "app"'


def test_a_call_that_is_under_way_ends_with_its_token_and_one_that_is_cancelled_does_not_say_so() -> None:
    async def ends(act: Callable[[Caller, "asyncio.Task[None]"], object]) -> BaseException | None:
        caller = Caller("one", {})
        began = asyncio.Event()

        async def call() -> None:
            with caller.calling():
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await began.wait()
        act(caller, task)
        (error,) = await asyncio.gather(task, return_exceptions=True)
        return error if isinstance(error, BaseException) else None

    async def body() -> None:
        assert isinstance(await ends(lambda caller, task: caller.revoke("gone")), Stopping)
        assert isinstance(await ends(lambda caller, task: task.cancel()), asyncio.CancelledError)

    asyncio.run(body())


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

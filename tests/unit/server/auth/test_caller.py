"""Callers, their rights, and calls that end with their token."""

import asyncio
from collections.abc import Callable

import pytest

from sidecar.model.errors import Forbidden, Stopping
from sidecar.server.auth.caller import ALL_SUBSCRIPTIONS, Caller, admitted, current, enter
from sidecar.settings import Right


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

"""Handlers that return before their work is done."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp import aio, processes
from tests.clients.python import process_handlers
from tests.clients.python.conftest import Blocking
from tests.clients.python.fake_sidecar import fake_sidecar


async def work(batch: offramp.Batch) -> None:
    raise AssertionError("nobody runs this")


@functools.wraps(work)
def wrapped(batch: offramp.Batch) -> Any:
    return work(batch)


def generator(batch: offramp.Batch) -> Any:
    yield batch


async def asynchronous_generator(batch: offramp.Batch) -> Any:
    yield batch


async def forgets_to_await(batch: offramp.Batch) -> Any:
    return work(batch)


async def returns_a_generator(batch: offramp.Batch) -> Any:
    return generator(batch)


@pytest.mark.parametrize(
    ("handler", "advice"),
    [
        (wrapped, "make it an async def, await it there, and run it by offramp.aio.Worker"),
        (generator, "a handler must not yield"),
        (asynchronous_generator, "a handler must not yield"),
    ],
)
def test_a_batch_whose_handler_did_not_run_is_not_acked(
    sidecar: Blocking, handler: Callable[[offramp.Batch], object], advice: str
) -> None:
    def handle(batch: offramp.Batch) -> object:
        worker.drain()
        return handler(batch)

    sidecar.offer([b"x"])
    worker = offramp.Worker("orders", handle, address=sidecar.address)
    worker.run()
    value, outcome, reason, _ = sidecar.fake.outcomes[0]
    assert (value, outcome) == (b"x", "NACK")
    assert "its work was not done" in reason
    assert advice in reason


@pytest.mark.parametrize("handler", [forgets_to_await, returns_a_generator])
def test_a_batch_whose_task_left_its_work_undone_is_not_acked(
    tmp_path: Path, handler: Callable[[offramp.Batch], Any]
) -> None:
    async def body() -> None:
        async with fake_sidecar(tmp_path) as sidecar:
            await sidecar.offer([b"x"])

            async def handle(batch: offramp.Batch) -> object:
                worker.drain()
                return await handler(batch)

            worker = aio.Worker("orders", handle, address=sidecar.address)
            await worker.run()
            value, outcome, reason, _ = sidecar.outcomes[0]
            assert (value, outcome) == (b"x", "NACK")
            assert "its work was not done" in reason

    asyncio.run(body())


def test_a_handler_may_return_the_sidecar_s_answer(sidecar: Blocking, caplog: pytest.LogCaptureFixture) -> None:
    def handle(batch: offramp.Batch) -> object:
        worker.drain()
        return batch.reject("never")

    sidecar.offer([b"x"])
    worker = offramp.Worker("orders", handle, address=sidecar.address)
    worker.run()
    assert sidecar.fake.of("REJECT") == [b"x"]
    assert "failed" not in caplog.text


def test_an_object_that_is_called_as_a_coroutine_is_no_handler_for_threads() -> None:
    with pytest.raises(TypeError, match=r"offramp\.aio\.Worker"):
        offramp.Worker("orders", process_handlers.Asynchronous())


@pytest.mark.parametrize("handler", [generator, asynchronous_generator, wrapped])
def test_only_what_is_async_def_is_a_handler_for_tasks(handler: Callable[[offramp.Batch], Any]) -> None:
    with pytest.raises(TypeError, match="async def"):
        aio.Worker("orders", handler)


@pytest.mark.parametrize(
    "handler",
    [process_handlers.do_in_a_task, process_handlers.Asynchronous(), functools.partial(process_handlers.do_in_a_task)],
)
def test_a_process_runs_in_tasks_what_only_tasks_can_run(handler: Callable[[offramp.Batch], Any]) -> None:
    worker, _ = processes._make_worker(processes.Job("orders", handler, {}, None, None))
    assert isinstance(worker, aio.Worker)


def test_a_process_runs_plain_functions_in_threads() -> None:
    worker, _ = processes._make_worker(processes.Job("orders", process_handlers.do, {}, None, None))
    assert isinstance(worker, offramp.Worker)

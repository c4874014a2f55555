"""Callers of the embedded broker share a transaction, but not each other's failures."""

import asyncio
import sqlite3
from collections.abc import Awaitable
from pathlib import Path

import pytest

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.local import LocalBroker
from sidecar.brokers.local.writer import Store
from sidecar.model.errors import Corrupt, Unavailable
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import consuming, numbered, publish
from tests.brokers.local.harness import execute, running, stored
from tests.event_loop import on_event_loop


async def publish_together(broker: LocalBroker, bad: int, jobs: int) -> list[object]:
    """Publishes in one transaction, in which also a group with a damaged cursor is opened, as number `bad`."""
    calls: list[Awaitable[object]] = [publish(broker, "topic", value) for value in numbered(jobs)]
    calls.insert(bad, broker.subscribe(SourceSpec("damaged", ("topic",))).open())
    return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("bad", [0, 1, 20, 40])
@on_event_loop
async def test_damage_that_one_caller_meets_does_not_fail_the_others(tmp_path: Path, bad: int) -> None:
    async with running(tmp_path, lanes=1) as broker, consuming(broker, "topic", group="damaged"):
        pass
    execute(tmp_path, "UPDATE cursors SET beyond = x'0011'")
    async with running(tmp_path, lanes=1) as broker, consuming(broker, "other", group="well") as consumer:
        answers = await publish_together(broker, bad, 40)
        assert isinstance(answers.pop(bad), Corrupt)
        assert all(isinstance(answer, list) for answer in answers)
        # Each record once, and in order.
        assert await stored(broker, "topic") == numbered(40)
        await consumer.commit(Lane("other", 0), Commit(0))


@on_event_loop
async def test_jobs_are_not_retried_one_by_one_while_the_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def busy(store: Store) -> None:
        begun.append(store)
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise error

    async with running(tmp_path, lanes=1) as broker:
        await publish(broker, "topic", b"before")
        monkeypatch.setattr(Store, "begin", busy)
        answers = await asyncio.gather(*(publish(broker, "topic", b"value") for _ in range(40)), return_exceptions=True)
        assert all(isinstance(answer, Unavailable) for answer in answers)
        assert len(begun) < 10
        monkeypatch.undo()
        await publish(broker, "topic", b"after")
        assert await stored(broker, "topic") == [b"before", b"after"]

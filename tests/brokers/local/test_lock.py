"""The lock file is removed while an embedded broker runs: no record replaces another."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sidecar.brokers.local import LocalBroker
from sidecar.model.errors import StartError, Unavailable
from sidecar.model.records import Commit, Lane
from tests.brokers.harness import Consumer, consuming, publish
from tests.brokers.local.harness import running, stored
from tests.event_loop import on_event_loop

LANE = Lane("topic", 0)


@asynccontextmanager
async def _without_lock(folder: Path) -> AsyncIterator[tuple[LocalBroker, Consumer]]:
    """A broker whose lock was removed, and a consumer of it."""
    async with running(folder, lanes=1) as broker, consuming(broker, "topic") as consumer:
        await publish(broker, "topic", b"by the first")
        (folder / "offramp.lock").unlink()
        yield broker, consumer


@on_event_loop
async def test_the_first_of_two_writes_nothing_more_while_the_second_is_there(tmp_path: Path) -> None:
    async with _without_lock(tmp_path) as (first, consumer), running(tmp_path, lanes=1) as second:
        await publish(second, "topic", b"by the second")
        with pytest.raises(Unavailable, match=rf"was removed .* in use by process {os.getpid()}"):
            await publish(first, "topic", b"refused")
        with pytest.raises(Unavailable, match="was removed while it was running"):
            await consumer.commit(LANE, Commit(1))
        await publish(second, "topic", b"by the second again")
        assert await stored(second, "topic") == [b"by the first", b"by the second", b"by the second again"]


@on_event_loop
async def test_the_first_continues_after_what_the_second_has_written(tmp_path: Path) -> None:
    async with _without_lock(tmp_path) as (first, consumer):
        async with running(tmp_path, lanes=1) as second:
            await publish(second, "topic", b"by the second")
            await publish(second, "of the second", b"value")
        await publish(first, "other", b"value")
        await consumer.take(2)
        await publish(first, "topic", b"by the first again")
        assert await consumer.take(3) == [b"by the first", b"by the second", b"by the first again"]
        assert await stored(first, "of the second") == [b"value"]
    async with running(tmp_path, lanes=1) as broker:
        assert await stored(broker, "topic") == [b"by the first", b"by the second", b"by the first again"]


@on_event_loop
async def test_a_lock_that_was_removed_is_taken_again(tmp_path: Path) -> None:
    async with running(tmp_path, lanes=1) as broker:
        (tmp_path / "offramp.lock").unlink()
        await publish(broker, "topic", b"value")
        with pytest.raises(StartError, match=f"in use by process {os.getpid()}"):
            async with running(tmp_path, lanes=1):
                pass


@on_event_loop
async def test_publishing_fails_once_the_directory_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path / "data", lanes=1) as broker:
        await publish(broker, "topic", b"value")
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(Unavailable, match="cannot be used: No such file or directory"):
            await publish(broker, "topic", b"into nothing")
        assert not (tmp_path / "data").exists()

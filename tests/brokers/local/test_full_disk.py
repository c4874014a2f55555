"""A full disk under the embedded broker: a real one, of a few megabytes."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.brokers.base import Trouble
from sidecar.brokers.local import LocalBroker
from sidecar.model.errors import OutOfRoom
from sidecar.model.records import Commit, Lane, Run
from tests.brokers.harness import WAIT_TIMEOUT, Consumer, consuming, publish
from tests.brokers.local.harness import MINUTE_MS, SetClock, positions, running, stored
from tests.event_loop import on_event_loop
from tests.servers.tools import give_up

MIB = 1 << 20
LANE = Lane("topic", 0)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if request.param == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(24 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        command = ["mount", "-o", "loop", str(image), str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        give_up(f"a small {request.param} cannot be mounted, which takes root: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


async def fill(broker: LocalBroker) -> int:
    """Publishes until the disk is full. Returns how many records were stored."""
    count = 0
    while True:
        try:
            await publish(broker, "topic", bytes(100_000))
            count += 1
        except OutOfRoom:
            return count


async def try_to_publish(broker: LocalBroker, value: bytes) -> bool:
    try:
        await publish(broker, "topic", value)
    except OutOfRoom:
        return False
    return True


async def trouble_is_over(consumer: Consumer) -> None:
    await consumer.until(lambda: Trouble("disk", "") in consumer.events)


@on_event_loop
async def test_publishing_is_refused_and_settling_continues(small_disk: Path) -> None:
    async with running(small_disk, reserve_bytes=4 * MIB) as broker, consuming(broker, "topic") as consumer:
        assert (small_disk / "offramp.reserve").stat().st_blocks * 512 >= 4 * MIB
        taken = await fill(broker)
        assert not (small_disk / "offramp.reserve").exists()
        with pytest.raises(OutOfRoom, match="is full: nothing can be published, settling continues"):
            await publish(broker, "topic", b"small")
        await consumer.take(taken)
        (trouble,) = (event for event in consumer.events if isinstance(event, Trouble))
        assert "Free some space" in trouble.text
        # Far more than the reserve has space for, unless the journal is written from its start again.
        for position in range(taken):
            for _ in range(20):
                await consumer.commit(LANE, Commit(position))
    async with running(small_disk, reserve_bytes=4 * MIB) as broker:
        assert (await positions(broker))["group"][LANE] == taken - 1
        assert len(await stored(broker, "topic")) == taken


@on_event_loop
async def test_acknowledged_records_are_kept_and_publishing_continues_when_there_is_space_again(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 * MIB))
    async with running(small_disk, reserve_bytes=2 * MIB) as broker, consuming(broker, "topic") as consumer:
        taken = await fill(broker)
        await consumer.take(taken)
        ballast.unlink()
        await trouble_is_over(consumer)
        assert (small_disk / "offramp.reserve").exists()
        await publish(broker, "topic", b"again")
        assert (await consumer.take(taken + 1))[-1] == b"again"


@on_event_loop
async def test_a_write_larger_than_the_disk_leaves_its_space_to_others(small_disk: Path) -> None:
    async with running(small_disk, reserve_bytes=2 * MIB) as broker:
        with pytest.raises(OutOfRoom):
            await publish(broker, "topic", *[bytes(MIB)] * 30)
        # Without any settlement.
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not await try_to_publish(broker, b"small"):
                pass
        assert (small_disk / "offramp.db-wal").stat().st_size <= 2 * MIB


@on_event_loop
async def test_retention_frees_space(small_disk: Path) -> None:
    clock = SetClock()
    options = {"reserve_bytes": 4 * MIB, "retention_age": 60.0}
    async with running(small_disk, clock, **options) as broker, consuming(broker, "topic") as consumer:
        taken = await fill(broker)
        await consumer.take(taken)
        await consumer.commit(LANE, Commit(taken))
        # The rest happens in the background.
        clock.ms += 10 * MINUTE_MS
        await trouble_is_over(consumer)
        await publish(broker, "topic", b"again")
        assert (await consumer.take(taken + 1))[-1] == b"again"


@on_event_loop
async def test_a_commit_that_finds_no_space_at_all_is_refused_and_stored_later(small_disk: Path) -> None:
    ballast, rest = small_disk / "ballast", small_disk / "rest"
    ballast.write_bytes(bytes(6 * MIB))
    beyond = tuple(Run(at, at + 1) for at in range(1, 200_000, 2))
    async with running(small_disk, reserve_bytes=MIB) as broker, consuming(broker, "topic") as consumer:
        await publish(broker, "topic", *[b""] * 200_000)
        taken = await fill(broker)
        # Something else uses the space that the reserve has freed.
        _fill_up(rest)
        with pytest.raises(OutOfRoom, match="There is no room left"):
            await consumer.commit(LANE, Commit(0, beyond))
        # The journal has kept its own space, so small commits still succeed.
        for position in range(1000):
            await consumer.commit(LANE, Commit(position))
        ballast.unlink()
        rest.unlink()
        await consumer.commit(LANE, Commit(0, beyond))
        await trouble_is_over(consumer)
        await publish(broker, "topic", b"again")
    async with running(small_disk, reserve_bytes=MIB) as broker, consuming(broker, "topic") as consumer:
        await consumer.until(consumer.assigned)
        assert consumer.assigned()[LANE].settled == beyond
        assert (await broker.lane_ends("topic"))[LANE].end == 200_000 + taken + 1


@on_event_loop
async def test_a_full_disk_can_be_opened_and_consumed(small_disk: Path) -> None:
    async with running(small_disk, reserve_bytes=2 * MIB) as broker:
        taken = await fill(broker)
    async with running(small_disk, reserve_bytes=4 * MIB) as broker, consuming(broker, "topic") as consumer:
        await consumer.take(taken)
        await consumer.commit(LANE, Commit(taken))
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not broker.trouble:
                await consumer.poll()
        with pytest.raises(OutOfRoom):
            await publish(broker, "topic", bytes(100_000))


def _fill_up(path: Path) -> None:
    """Uses the last byte of the disk."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass

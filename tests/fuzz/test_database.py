"""A damaged file of the embedded broker: what can be read is right, what cannot is said, and nothing crashes."""

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.model.errors import OfframpError
from sidecar.model.records import Commit, Lane, Run
from tests.brokers.harness import consuming, numbered, publish
from tests.brokers.local.harness import running

ROUNDS = 400 if os.environ.get("OFFRAMP_TEST_LONG") else 25
LANES, RECORDS = 3, 150


def flip(chance: random.Random, content: bytearray) -> None:
    for _ in range(chance.choice((1, 10, 200))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def zero(chance: random.Random, content: bytearray) -> None:
    at = chance.randrange(len(content))
    content[at : at + 4096] = bytes(len(content[at : at + 4096]))


def swap(chance: random.Random, content: bytearray) -> None:
    """Pages that change places, as after a disk that mixed them up."""
    one, two = (4096 * chance.randrange(len(content) // 4096) for _ in range(2))
    content[one : one + 4096], content[two : two + 4096] = content[two : two + 4096], content[one : one + 4096]


def cut(chance: random.Random, content: bytearray) -> None:
    del content[chance.randrange(len(content)) :]


def header(chance: random.Random, content: bytearray) -> None:
    for _ in range(3):
        content[chance.randrange(100)] = chance.randrange(256)


DAMAGES: tuple[Callable[[random.Random, bytearray], None], ...] = (flip, zero, swap, cut, header)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an undamaged database."""
    folder = tmp_path_factory.mktemp("whole")

    async def body() -> None:
        async with running(folder, lanes=LANES) as broker, consuming(broker, "topic") as consumer:
            for lane in range(LANES):
                await publish(broker, "topic", *numbered(RECORDS, f"{lane}-"), lane=lane)
            await consumer.take(LANES * RECORDS)
            await consumer.commit(Lane("topic", 0), Commit(10, (Run(20, 30), Run(40, 41))))

    asyncio.run(body())
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_or_gives_what_was_written(
    whole: Path, tmp_path: Path, damage: Callable[[random.Random, bytearray], None]
) -> None:
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        shutil.copytree(whole, folder)
        content = bytearray((folder / "offramp.db").read_bytes())
        damage(random.Random(seed), content)
        (folder / "offramp.db").write_bytes(content)
        asyncio.run(_look(folder, f"{damage.__name__} with seed {seed}"))
        shutil.rmtree(folder)


async def _look(folder: Path, what: str) -> None:
    try:
        async with running(folder, lanes=LANES) as broker, consuming(broker, "topic", group="another") as consumer:
            # It is silent when all came, or when what is left is held.
            while (await consumer.poll(timeout=0.05)).chunks:
                pass
            found = {(record.lane, record.position): record.value for record in consumer.records}
            for (lane, position), value in found.items():
                assert value == f"{lane}-{position}".encode(), f"{what}: {lane}/{position} is {value!r}"
            await publish(broker, "topic", b"more")
    except OfframpError:
        # Said, instead of a traceback: what it says is tested where it is raised.
        return

"""What processes of `offramp.Processes` do in tests: they are spawned, so that it must be in a module."""

import asyncio
import os
import sys
import time
from pathlib import Path

import offramp

FOLDER = "OFFRAMP_TEST_FOLDER"


def note(*words: object) -> None:
    """One line with the process id, in one write."""
    text = " ".join(map(str, (os.getpid(), *words)))
    with (Path(os.environ[FOLDER]) / "notes").open("a") as notes:
        notes.write(text + "\n")


def value(batch: offramp.Batch) -> str:
    return (batch[0].value or b"").decode()


def do(batch: offramp.Batch) -> None:
    note("did", value(batch))


async def do_in_a_task(batch: offramp.Batch) -> None:
    await asyncio.sleep(0)
    note("did", value(batch))


class Asynchronous:
    """A handler with a state, as an object."""

    async def __call__(self, batch: offramp.Batch) -> None:
        await do_in_a_task(batch)


def do_slowly(batch: offramp.Batch) -> None:
    time.sleep(0.02)
    note("did", value(batch))


def get_stuck_once(batch: offramp.Batch) -> None:
    note("did", value(batch))
    if batch[0].attempt == 1:
        time.sleep(600)


def wait_for_go(batch: offramp.Batch) -> None:
    note("began", value(batch))
    while not (Path(os.environ[FOLDER]) / "go").exists():
        time.sleep(0.01)
    note("ended", value(batch))


def begin() -> None:
    note("begins")


def leave() -> None:
    begin()
    sys.exit()


if __name__ == "__main__":
    # A program of its own, to be killed.
    offramp.Processes(sys.argv[1], do, processes=2).run()

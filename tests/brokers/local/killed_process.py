"""A process that publishes and consumes as fast as it can until it is killed, and logs which calls have returned.

    python -m tests.brokers.local.killed_process DIRECTORY LOG RUN

A line of the log is JSON: ["published", lane, position, value] once a publish has returned,
["committing", lane, position] before a commit, and ["committed", lane, position] once it has returned.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from sidecar.model.records import Commit, Lane, Message
from tests.brokers.harness import Consumer, consuming
from tests.brokers.local.harness import running

TOPIC = "topic"
LANES = 3
PUBLISHERS = 6
#: small, so that retention removes something all the time
OPTIONS: dict[str, Any] = {"lanes": LANES, "retention_bytes": 300_000}


class CallLog:
    """Lines go to the kernel without a buffer, so they outlive the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *lines: list[Any]) -> None:
        os.write(self._file, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


async def main(directory: str, path: str, run: int) -> None:
    log = CallLog(path)
    async with running(Path(directory), **OPTIONS) as broker, consuming(broker, TOPIC) as consumer:

        async def publish(who: int) -> None:
            number = 0
            rng = random.Random(run * 100 + who)
            while True:
                count = rng.choice((1, 1, 5, 40))
                values = [f"{run}:{who}:{n} {'x' * rng.randrange(200)}" for n in range(number, number + count)]
                messages = [Message(None, value.encode(), lane=who % LANES) for value in values]
                places = await broker.publish(TOPIC, messages)
                log.write(*(["published", *place, value] for place, value in zip(places, values, strict=True)))
                number += count

        async def remove_old_records() -> None:
            while True:
                await broker.run_retention()
                await asyncio.sleep(0.005)

        print("started", flush=True)
        await asyncio.gather(consume(consumer, log), remove_old_records(), *map(publish, range(PUBLISHERS)))


async def consume(consumer: Consumer, log: CallLog) -> None:
    while True:
        polled = await consumer.source.poll(500, 1 << 20, 1.0)
        commits = {chunk.lane: Commit(chunk.positions[-1] + 1) for chunk in polled.chunks}
        log.write(*(["committing", lane.number, commit.position] for lane, commit in commits.items()))
        await consumer.source.commit(commits)
        log.write(*(["committed", lane.number, commit.position] for lane, commit in commits.items()))


def lane(number: int) -> Lane:
    return Lane(TOPIC, number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))

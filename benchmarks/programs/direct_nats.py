"""The baseline on NATS: nats-py that fetches 500 messages at a time of each lane and acks each of them.
`python -m benchmarks.programs.direct_nats URL TOPIC LANES RECORDS`."""

import asyncio
import sys
import time

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from benchmarks.programs import print_result


async def consume(url: str, topic: str, lanes: int, records: int) -> None:
    cpu = time.process_time()
    client = await nats.connect(url)
    stream = client.jetstream()
    durable = f"direct-{time.time_ns()}"
    pulls = [
        await stream.pull_subscribe(
            f"{topic}.{lane}" if lane else topic,
            f"{durable}-{lane}",
            topic,
            ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1),
        )
        for lane in range(lanes)
    ]
    began = time.perf_counter()
    for lane, pull in enumerate(pulls):
        left = len(range(lane, records, lanes))
        while left:
            # For no more than there is: what is missing when it times out comes again after the ack wait only.
            for message in await pull.fetch(min(500, left), timeout=30.0):
                await message.ack()
                left -= 1
    await client.flush()
    ended = time.perf_counter()
    print_result(records=records, seconds=ended - began, cpu=time.process_time() - cpu)
    await client.close()


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

"""The baseline on Redis: redis-py with hiredis that reads 500 entries at a time and acks them in one call.
`python -m benchmarks.programs.direct_redis PORT TOPIC LANES RECORDS`."""

import asyncio
import sys
import time
from typing import Any

from redis.asyncio import Redis

from benchmarks.programs import print_result
from tests.servers.redis import names_of


async def consume(port: int, topic: str, lanes: int, records: int) -> None:
    cpu = time.process_time()
    client: Any = Redis(port=port, protocol=2)
    group, names = f"direct-{time.time_ns()}", names_of(topic, lanes)
    for name in names:
        await client.xgroup_create(name, group, "0")
    wanted = dict.fromkeys(names, ">")
    began = time.perf_counter()
    left = records
    while left:
        for name, entries in await client.xreadgroup(group, "direct", wanted, count=500):
            for _, fields in entries:
                fields[b"value"]
            await client.xack(name, group, *(id_ for id_, _ in entries))
            left -= len(entries)
    ended = time.perf_counter()
    print_result(records=records, seconds=ended - began, cpu=time.process_time() - cpu)
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(consume(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

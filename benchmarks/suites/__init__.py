"""All benchmarks, in the order of a turn. A module that has some is listed here, and nowhere else.

footprint   start time, idle memory, memory with a stopped app or with much that was settled
throughput  Kafka beside a tuned direct consumer: rate, processor time, memory
latency     what a sidecar adds to the latency of a Kafka record
rebalance   records handled again because lanes of Kafka move
growth      cost of a record with ten times as many lanes, workers or records
lanes       the rate of other lanes while one is slow
dispatch    batches of one record to many workers
handlers    a handler that gains from batches
poison      what records that always fail cost the others
recovery    an overloaded service after a stall, with and without `budget.adaptive`
local       the embedded broker, through a sidecar and alone
clients     the client of each language, and PHP processes on one lane
nats        NATS JetStream beside a direct consumer
pulsar      Pulsar beside a direct consumer, by subscription type
redis       Redis beside a direct consumer
spark       the Spark source beside other ways to read the topic
"""

from collections.abc import Sequence

from benchmarks.rows import Benchmark
from benchmarks.suites import (
    clients,
    dispatch,
    footprint,
    growth,
    handlers,
    lanes,
    latency,
    local,
    nats,
    poison,
    pulsar,
    rebalance,
    recovery,
    redis,
    spark,
    throughput,
)

_SUITES = (
    footprint,
    throughput,
    latency,
    rebalance,
    growth,
    lanes,
    dispatch,
    handlers,
    poison,
    recovery,
    local,
    clients,
    nats,
    pulsar,
    redis,
    spark,
)
BENCHMARKS: Sequence[Benchmark] = tuple(benchmark for suite in _SUITES for benchmark in suite.BENCHMARKS)


def chosen(beginnings: Sequence[str]) -> list[Benchmark]:
    """Those whose name, or the name of one of their rows, begins so. Without beginnings: all but those that must be
    named.

    Raises `LookupError` for a beginning that matches nothing.
    """
    for beginning in beginnings:
        if not any(_matches(benchmark, beginning) for benchmark in BENCHMARKS):
            raise LookupError(
                f'no benchmark begins with "{beginning}"; there are {", ".join(b.name for b in BENCHMARKS)}'
            )
    if not beginnings:
        return [benchmark for benchmark in BENCHMARKS if not benchmark.by_name_only]
    return [b for b in BENCHMARKS if any(_matches(b, beginning) for beginning in beginnings)]


def _matches(benchmark: Benchmark, beginning: str) -> bool:
    return any(name.startswith(beginning) for name in (benchmark.name, *(row.name for row in benchmark.rows)))

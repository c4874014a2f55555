"""All benchmarks, in the order in which a turn goes. A file that has some is named here, and nowhere else."""

from collections.abc import Sequence

from benchmarks import (
    clients,
    dispatch,
    footprint,
    growth,
    handlers,
    lanes,
    latency,
    local,
    pulsar,
    recovery,
    spark,
    throughput,
)
from benchmarks.rows import Benchmark

_FILES: Sequence[Sequence[Benchmark]] = (
    footprint.BENCHMARKS,
    throughput.BENCHMARKS,
    latency.BENCHMARKS,
    growth.BENCHMARKS,
    lanes.BENCHMARKS,
    dispatch.BENCHMARKS,
    handlers.BENCHMARKS,
    recovery.BENCHMARKS,
    local.BENCHMARKS,
    clients.BENCHMARKS,
    pulsar.BENCHMARKS,
    spark.BENCHMARKS,
)
BENCHMARKS: Sequence[Benchmark] = tuple(benchmark for file in _FILES for benchmark in file)


def chosen(beginnings: Sequence[str]) -> list[Benchmark]:
    """Those whose names, or the names of some of whose rows, begin so. Without beginnings: the whole, which leaves out
    those that want to be named.

    Raises `LookupError` for a beginning that nothing has.
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

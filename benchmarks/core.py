"""The core on the embedded broker: throughput, dispatch, memory, start."""

from benchmarks.rows import Benchmark, Goal
from benchmarks.running import Sidecar

_THROUGHPUT_RECORDS = 300_000
_DISPATCH_BATCHES = 30_000
_WORKERS, _WORK = 64, 0.005


def throughput() -> float:
    """Records a second, end to end: 100 B in batches of 500, with the Python client."""
    with Sidecar(batch=500) as sidecar:
        sidecar.publish(_THROUGHPUT_RECORDS, size=100)
        done = sidecar.consume(_THROUGHPUT_RECORDS, workers=4, work=0.0)
    return float(done["records"] / done["seconds"])


def sidecar_cpu() -> float:
    """CPU seconds of the sidecar for a million records, delivered and settled."""
    with Sidecar(batch=500) as sidecar:
        sidecar.publish(_THROUGHPUT_RECORDS, size=100)
        before = sidecar.cpu_seconds
        done = sidecar.consume(_THROUGHPUT_RECORDS, workers=4, work=0.0)
        used = sidecar.cpu_seconds - before
    return float(used / done["records"] * 1_000_000)


def dispatch() -> float:
    """Batches of one a second, as a share of what 64 workers of 5 ms could do at most."""
    with Sidecar(batch=1) as sidecar:
        sidecar.publish(_DISPATCH_BATCHES, size=100)
        done = sidecar.consume(_DISPATCH_BATCHES, workers=_WORKERS, work=_WORK)
    return float(done["batches"] / done["seconds"] / (_WORKERS / _WORK))


def idle_memory() -> float:
    with Sidecar(batch=500) as sidecar:
        return sidecar.resident_bytes / 1e6


def ready() -> float:
    with Sidecar(batch=500) as sidecar:
        return sidecar.ready_after


BENCHMARKS = [
    Benchmark("local-throughput", "records/s", throughput, Goal(40_000, at_least=True)),
    Benchmark("local-cpu", "CPU s per million", sidecar_cpu),
    Benchmark("dispatch-64", "of the ideal", dispatch, Goal(0.7, at_least=True)),
    Benchmark("idle-memory", "MB resident", idle_memory, Goal(80, at_least=False)),
    Benchmark("ready", "s", ready, Goal(1.5, at_least=False)),
]

"""The circumstances of a measurement: the machine, its software and its load."""

import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.servers import kafka, pulsar

#: of the cores: a load average above this, before anything was started, is other work that disturbs the figures
_QUIET = 0.25

_LIBRARIES = ("offramp-sidecar", "offramp", "grpcio", "protobuf", "confluent-kafka", "pulsar-client")


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
    }


def versions() -> dict[str, str]:
    """Versions of libraries, brokers and languages. Leaves out languages that are not installed."""
    found = {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
    found |= {"kafka": kafka.VERSION, "pulsar": pulsar.VERSION}
    for language, option in {"php": "--version", "java": "-version"}.items():
        if shutil.which(language):
            done = subprocess.run([language, option], capture_output=True, text=True, check=False)
            if number := re.search(r"\d+(\.\d+)+", done.stdout + done.stderr):
                found[language] = number[0]
    return found


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def disturbance(load: float) -> str:
    """What to say of a load average from before a run; empty if the machine is quiet."""
    cores = os.cpu_count() or 1
    if load <= _QUIET * cores:
        return ""
    return (
        f"THE MACHINE IS NOT QUIET: a load average of {load:g} on {cores} cores before anything was started. Rates are "
        "too low, latencies and processor times too high; compare ratios alone, and publish none of it."
    )


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _processor() -> str:
    if sys.platform == "linux":
        names = re.findall(r"(?m)^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text())
        if names:
            return str(names[0])
    return platform.processor() or platform.machine()

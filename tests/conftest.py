"""For all tests."""

import os
import signal

import pytest

from tests import hypothesis_profiles

pytest_plugins = ["tests.servers.fixtures"]

# What a script starts in its background ignores interrupts, and so do all children: the processes under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests may run in a pod themselves; the sidecars that they start do not.
os.environ.pop("KUBERNETES_SERVICE_HOST", None)
# What `pip install offramp-sidecar` gives runs on asyncio's event loop; tests that are about uvloop say so.
os.environ.setdefault("OFFRAMP_PURE", "1")


hypothesis_profiles.load()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_AtOnce(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark begins first and has two workers of its own: one with the session that its tests share, one for
    the processes that start a Spark of their own. Two JVMs are what a small machine can bear beside all else."""
    groups = {"spark": "spark-session", "java": "spark-processes"}
    last: list[pytest.Item] = []
    first: dict[str, list[pytest.Item]] = {fixture: [] for fixture in groups}
    for item in items:
        needs = next((one for one in groups if one in getattr(item, "fixturenames", ())), None)
        if needs is None:
            last.append(item)
        else:
            item.add_marker(pytest.mark.xdist_group(groups[needs]))
            first[needs].append(item)
    items[:] = [*(item for group in first.values() for item in group), *last]


class _AtOnce:
    """Names what fails when it fails: the whole takes long, and the reasons come at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line("")
            terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)

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


hypothesis_profiles.load()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_AtOnce(config))


class _AtOnce:
    """Names what fails when it fails: the whole takes long, and the reasons come at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line("")
            terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)

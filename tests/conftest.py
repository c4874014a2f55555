"""For all tests."""

pytest_plugins = ["tests.servers.fixtures"]

"""For all tests."""

import signal

pytest_plugins = ["tests.servers.fixtures"]

# What a script starts in its background ignores interrupts, and so do all children: the processes under test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

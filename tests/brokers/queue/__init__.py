"""The mechanism for brokers with handles, on a queue broker in memory.

memory_driver  the driver, and the server behind it, with faults that a test injects
harness        the broker for the shared suites
"""

"""The twelve promises of Offramp as one suite of tests that runs on every broker.

suite                the promises: one module for each
test_*               the suite on each broker
exemptions           which promises a broker cannot keep, and why: the table of docs/semantics.md
environment          what a test gets: a subscription on a broker, and workers; the decorators `promise` and `needs`
memory               the harness of the broker in memory, with and without lanes that move
worker               a worker that a test controls, and the batches that it gets
audit                checks every commit of every test against promise 1
instrumented_broker  records what the subscription asks of its broker, and injects faults
rebalancing_broker   a broker in memory whose lanes move between sidecars
adjustable_time      an event loop whose clock a test moves forward
"""

from pkgutil import iter_modules

import pytest

# These are not files that pytest collects; a failing assert must show its values all the same.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

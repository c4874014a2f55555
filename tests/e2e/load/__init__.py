"""A sidecar under load: worker processes that keep journals, and an audit that believes only those.

kinds           what records ask of the worker that gets them
journal         what a worker notes, before it says so to the sidecar
worker          the worker process, in Python and in PHP
processes       the worker processes and the publisher, as a test has them
origins         where dead letters and parked records come from, by their headers
audit           compares what a broker has with the journals
database        reads the file of the embedded broker
embedded_audit  the same audit for the embedded broker, which also knows how each stay in the retry topic ended
fleet           several sidecars of one group, each with workers
steady          a producer of the broker's own library, at a steady pace
faults          what a fleet goes through, on each broker
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

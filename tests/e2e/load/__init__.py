"""A sidecar under load: worker processes that keep books of their own, and a checker that believes only those.

kinds    what records ask of the worker that gets them
journal  what a worker notes, before it says so to the sidecar
laborer  the worker process
crew     the processes and the publisher, as a test has them
origins  where dead letters and parked records come from, by their headers
ledger   what a broker and the journals say, and whether it fits together
database the file of the embedded broker
books    the same for the embedded broker, which also knows how each stay in the retry topic ended
fleet    several sidecars of one group, each with a crew
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

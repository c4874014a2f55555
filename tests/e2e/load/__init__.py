"""A sidecar under load: worker processes that keep books of their own, and a checker that believes only those.

kinds    what records ask of the worker that gets them
journal  what a worker notes, before it says so to the sidecar
laborer  the worker process
crew     the processes and the publisher, as a test has them
books    what the broker and the journals say, and whether it fits together
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

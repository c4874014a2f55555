"""Decides whether the history of a round keeps the promises. Pure, and shares no code with the sidecar.

history            a round as it is on the disk when it is over
disturbances       which process was disturbed from when to when, by the event log
history_index      a history with the indexes that the rules need
reasons            which disturbances explain that a record comes again
rules/             what is checked
checker            applies all rules to a history
example_histories  histories for the tests of the checker
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

"""The twelve promises of Offramp as one suite of tests, played on every broker."""

from pkgutil import iter_modules

import pytest

# The suite is not in files that pytest knows as tests; a failing assert must show its values all the same.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from pkgutil import iter_modules

import pytest

# They are no test modules by name, and their assertions should explain themselves all the same.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

import pytest

# Their assertions explain themselves, too.
pytest.register_assert_rewrite("tests.brokers.contract", "tests.brokers.harness")

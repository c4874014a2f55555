import pytest

# Gives assertions outside of test modules the same explanations.
pytest.register_assert_rewrite("tests.brokers.contract", "tests.brokers.harness")

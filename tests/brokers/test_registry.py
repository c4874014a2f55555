"""The registry of brokers by type."""

import subprocess
import sys

import pytest

from sidecar import brokers
from sidecar.brokers.base import Broker
from sidecar.config.build import keys_of
from sidecar.settings import BrokerSettings


@pytest.mark.parametrize("kind", brokers.kinds())
def test_a_broker_of_every_type_can_be_created_with_its_defaults_and_examples(kind: str) -> None:
    cls = brokers.options_class(kind)
    examples = {
        key: field.metadata["example"] for key, (field, _) in keys_of(cls).items() if "example" in field.metadata
    }
    options = cls(**examples)
    assert isinstance(brokers.create(BrokerSettings(name="any", type=kind, options=options)), Broker)


def test_no_adapter_is_imported_before_it_is_configured() -> None:
    code = (
        "import sys, sidecar.settings, sidecar.brokers.base; print(*(m for m in sys.modules if 'sidecar.brokers' in m))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) == {f"sidecar.brokers{name}" for name in ("", ".base", ".fencing", ".range_cursor")}

"""What docs/semantics.md says of the promises is what the suite does."""

import re
from pathlib import Path

from sidecar.brokers.kafka import KafkaBroker
from sidecar.brokers.local import LocalBroker
from sidecar.brokers.pulsar.broker import traits as pulsar_traits
from sidecar.brokers.pulsar.options import SubscriptionType
from tests.memory_broker import MemoryBroker
from tests.promises.traits import PROMISES, table

ROOT = Path(__file__).parents[2]
BROKERS = {
    "local": LocalBroker.traits,
    "kafka": KafkaBroker.traits,
    **{f"pulsar {kind.value}": pulsar_traits(kind) for kind in SubscriptionType},
    "memory": MemoryBroker.traits,
}


def _semantics() -> str:
    return (ROOT / "docs" / "semantics.md").read_text()


def test_the_documentation_shows_the_table_of_promises_and_brokers() -> None:
    assert table(BROKERS) in _semantics()


def test_every_promise_has_a_section_that_names_its_tests() -> None:
    sections = dict(re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", _semantics(), flags=re.MULTILINE | re.DOTALL))
    assert [int(number) for number in sections] == [*PROMISES]
    for number, (_, module) in PROMISES.items():
        file = f"tests/promises/{module}.py"
        assert (ROOT / file).is_file()
        assert f"`{file}`" in sections[str(number)]

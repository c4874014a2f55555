"""docs/semantics.md agrees with the suite."""

import re
from pathlib import Path

from sidecar.brokers.kafka import KafkaOptions
from sidecar.brokers.local import LocalOptions
from sidecar.brokers.nats import NatsOptions
from sidecar.brokers.pulsar.options import PulsarOptions, SubscriptionType
from sidecar.brokers.redis import RedisOptions
from tests.promises.exemptions import PROMISES, table

ROOT = Path(__file__).parents[2]
BROKERS = {
    "local": LocalOptions.traits,
    "kafka": KafkaOptions.traits,
    **{
        f"pulsar {kind.value}": PulsarOptions(url="pulsar://pulsar:6650", subscription_type=kind).traits
        for kind in SubscriptionType
    },
    "redis": RedisOptions(url="redis://redis:6379").traits,
    "nats": NatsOptions(url="nats://nats:4222").traits,
}


def _semantics() -> str:
    return (ROOT / "docs" / "semantics.md").read_text()


def test_the_documentation_shows_the_table_of_promises_and_brokers() -> None:
    # The page wraps the footnotes.
    assert " ".join(table(BROKERS).split()) in " ".join(_semantics().split())


def test_every_promise_has_a_section_that_names_its_tests() -> None:
    sections = dict(re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", _semantics(), flags=re.MULTILINE | re.DOTALL))
    assert [int(number) for number in sections] == [*PROMISES]
    for number, (_, module) in PROMISES.items():
        file = f"tests/promises/suite/{module}.py"
        assert (ROOT / file).is_file()
        assert f"`{file}`" in sections[str(number)]

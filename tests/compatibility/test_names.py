"""What the older release showed to others is there under the same names: configuration, protocol, metrics, status."""

from typing import Any

import yaml

from offramp.v1 import admin_pb2, consumer_pb2, log_pb2, publish_pb2, record_pb2
from sidecar import cli, config
from sidecar.cli.json_lines import plain
from sidecar.config.yaml_writer import write
from sidecar.observability.metrics import METRICS
from tests.compatibility import FIXTURES, fixture

NAMES = fixture("names.json")
FILES = [module.DESCRIPTOR for module in (record_pb2, consumer_pb2, publish_pb2, log_pb2, admin_pb2)]


def test_a_configuration_with_every_key_loads_to_the_same_settings() -> None:
    settings = config.load(str(FIXTURES / "offramp.yaml"), environ={"KAFKA_PASSWORD": "from the environment"})
    shown = yaml.safe_load(write(settings))
    assert included(yaml.safe_load((FIXTURES / "offramp.shown.yaml").read_text()), shown) == []
    # Secrets are hidden there.
    brokers = settings.brokers
    assert brokers["kafka"].options.password == "from the environment"
    assert brokers["kafka"].options.property_files == {"ssl.key.password": "/run/secrets/key"}
    assert brokers["everywhere"].options.password_file == "/run/secrets/kafka"
    assert brokers["pulsar"].options.token == "not-a-secret"
    assert brokers["rotated"].options.token_file == "/run/secrets/pulsar"
    assert settings.clients["billing"].token_file == "/etc/offramp/tokens/billing"


def included(old: Any, new: Any, path: str = "") -> list[str]:
    """What is in the old tree and is not, or is otherwise, in the new one."""
    if not isinstance(old, dict):
        return [] if old == new else [f"{path}: {old!r} became {new!r}"]
    return [
        wrong
        for key, value in old.items()
        for wrong in included(value, (new or {}).get(key), f"{path}.{key}".strip("."))
    ]


#: broke on purpose, once, before the first release of the protocol: words became enums
BROKEN_BEFORE_THE_FIRST_RELEASE = {"offramp.v1.SubscriptionStatus.order", "offramp.v1.SubscriptionStatus.mode"}


def test_every_metric_is_there_with_its_kind_and_its_labels() -> None:
    today = {metric.name: [metric.kind.value, list(metric.labels)] for metric in METRICS}
    assert included(NAMES["metrics"], today) == []


def test_every_field_value_and_method_of_the_protocol_is_there() -> None:
    fields = {
        f"{message.full_name}.{field.name}": [field.number, field.type, field.is_repeated]
        for file in FILES
        for message in file.message_types_by_name.values()
        for field in message.fields
    }
    values = {
        f"{enum.full_name}.{value.name}": value.number
        for file in FILES
        for enum in file.enum_types_by_name.values()
        for value in enum.values
    }
    methods = {
        method.full_name for file in FILES for service in file.services_by_name.values() for method in service.methods
    }
    kept = {name: field for name, field in NAMES["fields"].items() if name not in BROKEN_BEFORE_THE_FIRST_RELEASE}
    assert included(kept, fields) == []
    assert included(NAMES["values"], values) == []
    assert set(NAMES["methods"]) <= methods


def test_the_status_as_json_has_every_key() -> None:
    pb = admin_pb2
    subscription = pb.SubscriptionStatus(
        lanes=[pb.LaneStatus()], sessions=[pb.SessionStatus()], counters=pb.Counters(), reader=pb.ReaderStatus()
    )
    status = pb.Status(subscriptions=[subscription], brokers=[pb.BrokerStatus(facts={"directory": "d", "sqlite": "v"})])
    assert set(NAMES["status"]) - set(leaves(plain(status))) == set()


def leaves(tree: Any, path: str = "") -> list[str]:
    """The paths of the values; of a list of tables, those of the first."""
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        return leaves(tree[0], f"{path}[]")
    if not isinstance(tree, dict) or not tree:
        return [path.removeprefix(".")]
    return [leaf for name, one in tree.items() for leaf in leaves(one, f"{path}.{name}")]


def test_every_command_is_there() -> None:
    assert set(NAMES["commands"]) <= set(cli.COMMANDS)

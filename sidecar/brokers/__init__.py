"""Brokers: the contract that each implements, and one package for each type.

base          the contract: `Broker`, `Source`, `BrokerOptions`, and `Traits`, which declare all that differs
range_cursor  the part of the contract for groups that are read by ranges
fencing       pure: fencing tokens for the readers of such groups, and how a broker stores them
connections   opens the configured brokers and tries again while they cannot be reached
fair_take     takes records from several lanes, so that none starves
local         the embedded broker, in one SQLite file
kafka         Apache Kafka
nats          NATS JetStream
pulsar        Apache Pulsar
queue         what brokers have in common that give a handle with each message
redis         streams of Redis and Valkey

To add a broker, write a package with a `Broker`, a `Source` and a `BrokerOptions`, register it in `_ADAPTERS` below,
and give the shared suites in tests/brokers a harness for it. An adapter is imported only when the configuration names
it, so that only its users need its library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecar.brokers.base import Broker, BrokerOptions
    from sidecar.settings import BrokerSettings


class _Adapter(NamedTuple):
    """The package of an adapter, and the names of its two classes in it. `broker` takes an instance of `options`."""

    module: str
    options: str
    broker: str
    #: the extra of this package that its library comes with; empty: it is always there
    extra: str = ""


#: by the `type` of a configured broker
_ADAPTERS = {
    "local": _Adapter("sidecar.brokers.local", "LocalOptions", "LocalBroker"),
    "kafka": _Adapter("sidecar.brokers.kafka", "KafkaOptions", "KafkaBroker"),
    "nats": _Adapter("sidecar.brokers.nats", "NatsOptions", "NatsBroker", extra="nats"),
    "pulsar": _Adapter("sidecar.brokers.pulsar", "PulsarOptions", "PulsarBroker"),
    "redis": _Adapter("sidecar.brokers.redis", "RedisOptions", "RedisBroker", extra="redis"),
}


def kinds() -> tuple[str, ...]:
    """The values that the `type` of a configured broker may have."""
    return tuple(_ADAPTERS)


def options_class(kind: str) -> "type[BrokerOptions]":
    """The class of an adapter's options. Raises `ImportError` if a library is missing."""
    adapter = _ADAPTERS[kind]
    found: type[BrokerOptions] = getattr(import_module(adapter.module), adapter.options)
    return found


def extra(kind: str) -> str:
    """What installs the library of an adapter: the name of an extra; empty if there is none."""
    return _ADAPTERS[kind].extra if kind in _ADAPTERS else ""


def create(settings: "BrokerSettings") -> "Broker":
    """The configured broker, not yet open. Raises `ImportError` if a library is missing."""
    adapter = _ADAPTERS[settings.type]
    broker: Broker = getattr(import_module(adapter.module), adapter.broker)(settings.options)
    return broker

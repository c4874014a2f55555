"""Brokers by kind. Each is loaded only when it is configured, so that nobody needs the libraries of all of them."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecar.brokers.base import Broker
    from sidecar.settings import BrokerSettings


class _Adapter(NamedTuple):
    """Where an adapter is: its class of options, and its class of `Broker`, which is made with them."""

    module: str
    options: str
    broker: str


_ADAPTERS = {
    "local": _Adapter("sidecar.brokers.local", "LocalOptions", "LocalBroker"),
    "kafka": _Adapter("sidecar.brokers.kafka", "KafkaOptions", "KafkaBroker"),
    "pulsar": _Adapter("sidecar.brokers.pulsar", "PulsarOptions", "PulsarBroker"),
}


def kinds() -> tuple[str, ...]:
    """What the `type` of a configured broker may be."""
    return tuple(_ADAPTERS)


def options_class(kind: str) -> type:
    """The frozen dataclass of an adapter's options. Raises `ImportError` if a library is missing."""
    adapter = _ADAPTERS[kind]
    found: type = getattr(import_module(adapter.module), adapter.options)
    return found


def create(settings: "BrokerSettings") -> "Broker":
    """The configured broker, not open yet. Raises `ImportError` if a library is missing."""
    adapter = _ADAPTERS[settings.type]
    broker: Broker = getattr(import_module(adapter.module), adapter.broker)(settings.options)
    return broker

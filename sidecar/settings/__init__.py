"""All settings, frozen. `config` fills them from YAML, environment and `--set`; the reference is made from them.

Every field carries its documentation, so that the example file, `docs/configuration.md` and the error messages
cannot tell different stories. Durations are seconds, sizes are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sidecar.settings.kit import Address, Bytes, Mode, Seconds, section, setting
from sidecar.settings.listening import Authenticate, ClientSettings, HttpSettings, ListenSettings, Right
from sidecar.settings.subscriptions import (
    BatchSettings,
    BudgetSettings,
    DeadLetterSettings,
    Exhausted,
    LeaseSettings,
    MemorySettings,
    OutageSettings,
    Oversized,
    ParkingSettings,
    RetrySettings,
    SubscriptionMode,
    SubscriptionSettings,
    WindowSettings,
)

__all__ = [
    "Address",
    "Authenticate",
    "BatchSettings",
    "BrokerSettings",
    "BudgetSettings",
    "Bytes",
    "ClientSettings",
    "DeadLetterSettings",
    "DrainSettings",
    "Exhausted",
    "HttpSettings",
    "LeaseSettings",
    "ListenSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MemorySettings",
    "Mode",
    "OutageSettings",
    "Oversized",
    "ParkingSettings",
    "RetrySettings",
    "Right",
    "Seconds",
    "Settings",
    "SubscriptionMode",
    "SubscriptionSettings",
    "TracingSettings",
    "WindowSettings",
    "section",
    "setting",
]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """`options` are checked by the adapter named by `type`, against its own settings class."""

    name: str
    type: str
    options: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSettings:
    deadline: Seconds = setting(
        "How long workers may take to settle what they hold when the sidecar stops.", Seconds(25.0), at_least=0.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: LogLevel = setting("The least important events that are logged.", LogLevel.INFO)
    format: LogFormat = setting("`text` for people, `json` for machines.", LogFormat.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    endpoint: str = setting(
        "The collector that spans go to, by OTLP over HTTP, as in http://127.0.0.1:4318. Empty: as the OTEL_* "
        "variables say, and without them no spans are made. Needs `offramp-sidecar[tracing]`.",
        "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    listen: ListenSettings = section("Where apps connect.", ListenSettings)
    http: HttpSettings = section("Where people look, and probes and Prometheus connect.", HttpSettings)
    drain: DrainSettings = section("How the sidecar stops.", DrainSettings)
    log: LogSettings = section("What is logged.", LogSettings)
    clients: Mapping[str, ClientSettings] = setting(
        "Those who call with a token, by name, and what they may do. See `listen.authenticate` for who needs one.", {}
    )
    tracing: TracingSettings = section("OpenTelemetry spans.", TracingSettings)
    brokers: Mapping[str, BrokerSettings] = setting(
        "Brokers by name. `local` needs no entry: it is there if a subscription names it, or if no other broker is.",
        {},
    )
    subscriptions: Mapping[str, SubscriptionSettings] = setting("Subscriptions by name.", {})

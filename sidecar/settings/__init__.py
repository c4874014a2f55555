"""All settings, as frozen dataclasses. `sidecar.config` fills them from YAML, the environment and `--set`.

fields         what settings are made of: documented fields, and types that say how a value is written
listeners      where callers connect, who may, and with which rights: `listen`, `clients`, `http`
subscriptions  how a subscription consumes
push           how the sidecar calls an app that is a server

The example file, the tables of `docs/configuration.md` and the error messages are generated from the documentation of
the fields. Durations are in seconds, sizes in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sidecar.settings.fields import Address, Bytes, Mode, Seconds, section, setting
from sidecar.settings.listeners import Authenticate, ClientSettings, HttpSettings, ListenSettings, Right
from sidecar.settings.push import PushFormat, PushSettings
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
    "PushFormat",
    "PushSettings",
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
    """`options` is an instance of the settings class that belongs to `type`."""

    name: str
    type: str
    options: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSettings:
    deadline: Seconds = setting(
        "How long workers may take to settle their batches when the sidecar stops.", Seconds(25.0), at_least=0.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: LogLevel = setting("The lowest level that is logged.", LogLevel.INFO)
    format: LogFormat = setting("`text` for people, `json` for machines.", LogFormat.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    endpoint: str = setting(
        "URL of the collector that receives spans by OTLP over HTTP, such as http://127.0.0.1:4318. Empty: taken from "
        "the OTEL_* variables; without these, tracing is off. Requires `offramp-sidecar[tracing]`.",
        "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    listen: ListenSettings = section("Where apps connect.", ListenSettings)
    http: HttpSettings = section("The status page, probes and metrics.", HttpSettings)
    drain: DrainSettings = section("How the sidecar stops.", DrainSettings)
    log: LogSettings = section("What is logged.", LogSettings)
    clients: Mapping[str, ClientSettings] = setting(
        "Clients that call with a token, by name, and their rights. `listen.authenticate` says where a token is "
        "required.",
        {},
    )
    tracing: TracingSettings = section("OpenTelemetry spans.", TracingSettings)
    brokers: Mapping[str, BrokerSettings] = setting(
        "Brokers by name. `local` needs no entry: it exists if a subscription names it or if there is no other broker.",
        {},
    )
    subscriptions: Mapping[str, SubscriptionSettings] = setting("Subscriptions by name.", {})

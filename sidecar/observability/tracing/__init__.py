"""OpenTelemetry spans for poll, deliver and settle, if they are configured.

Importing this package loads nothing of OpenTelemetry; `start` does, if spans have somewhere to go. Otherwise a
subscription has no `Tracer`, and its hot path only asks whether it has one.

| module | what it is for |
|---|---|
| `tracer` | what a subscription reports to its tracer, and whether there is one |
| `spans` | spans by the messaging conventions of OpenTelemetry, linked to the traces of producers |
| `exporter` | the SDK: resource, exporter, and an end in bounded time |
"""

from sidecar.observability.tracing.tracer import Tracer, Tracing, start

__all__ = ["Tracer", "Tracing", "start"]

"""OpenTelemetry spans for poll, deliver and settle, if somebody wants them.

Nothing of OpenTelemetry is imported here: `start` does that, and only when spans have somewhere to go. Otherwise the
subscription has no `Tracer`, and its hot path asks no more than whether it has.

| room | what it owns |
|---|---|
| `hooks` | what a subscription tells whoever makes spans |
| `choice` | whether spans are wanted, and where they go |
| `exporting` | the SDK: resource, exporter, and a bounded end |
| `making` | spans by the messaging conventions |
| `producers` | the contexts that producers have left in records |
"""

from sidecar.observability.tracing.choice import start
from sidecar.observability.tracing.hooks import Tracer, Tracing

__all__ = ["Tracer", "Tracing", "start"]

"""What a stream and a consumer do to messages by themselves, as the server describes them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from sidecar.brokers.queue.driver import Limits
from sidecar.model.errors import Refused

_NANOSECONDS = 1_000_000_000
#: the share of a stream's limit at which it removes messages soon, and the share of its messages that a group should
#: have settled by then
_NEARLY_FULL, _SETTLED_AHEAD = 0.8, 0.2


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    #: seconds after which it delivers again what was not renewed
    lease: float
    #: most records and bytes of a pull, and most seconds for which one may wait; `inf`: no limit
    batch: float
    size: float
    wait: float
    limits: Limits

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ConsumerLimits":
        waits = [config.get("ack_wait", 30 * _NANOSECONDS), *(config.get("backoff") or ())]
        return cls(
            lease=min(waits) / _NANOSECONDS,
            batch=config.get("max_batch") or inf,
            size=config.get("max_bytes") or inf,
            wait=(config.get("max_expires") or inf) / _NANOSECONDS,
            limits=Limits(deliveries=max(0, config.get("max_deliver", -1))),
        )


def refuse_unusable(config: Mapping[str, Any], name: str, owner: str, subject: str) -> None:
    """Raises `Refused` for a consumer that cannot be used by a lane. `owner`: what ours say in their metadata;
    `subject`: the filter that it needs, empty for none."""
    said = (config.get("metadata") or {}).get("offramp", owner)
    if said != owner:
        raise Refused(
            f"NATS: consumer {name} belongs to {said}, and {owner} would have the same name: rename the group"
        )
    if config.get("deliver_subject"):
        raise Refused(f"NATS: consumer {name} is a push consumer; delete it, and a pull consumer is created")
    if config.get("ack_policy") != "explicit":
        raise Refused(f"NATS: consumer {name} has ack policy {config.get('ack_policy')}; it takes explicit")
    if subject and config.get("filter_subject") != subject:
        raise Refused(f"NATS: consumer {name} does not filter {subject}, which its lane is; delete it")


def troubles_of(stream: Mapping[str, Any], consumer: Mapping[str, Any], now: datetime) -> dict[str, str]:
    """What an operator should know of a stream and a consumer, by kind; empty texts for what is well."""
    return {
        "retention": _retention(stream, consumer, now),
        "max_ack_pending": _pending(consumer),
        "paused": f"consumer {consumer['name']} is paused: nats consumer resume" if consumer.get("paused") else "",
    }


def _retention(stream: Mapping[str, Any], consumer: Mapping[str, Any], now: datetime) -> str:
    config, state = stream["config"], stream["state"]
    full = [what for what, share in _shares(config, state, now) if share >= _NEARLY_FULL]
    if not full or config.get("discard") == "new" or config.get("retention", "limits") != "limits":
        return ""
    settled = consumer["ack_floor"]["stream_seq"] + 1 - state["first_seq"]
    left = consumer["num_pending"] + consumer["num_ack_pending"]
    if not left or settled >= state["messages"] * _SETTLED_AHEAD:
        return ""
    return (
        f"stream {config['name']} is near its {full[0]} and removes the oldest messages, which this group has not "
        "settled yet. Consume faster, or raise the limit"
    )


def _shares(config: Mapping[str, Any], state: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, float]]:
    """How full a stream is by each of its limits."""
    if config.get("max_msgs", -1) > 0:
        yield "max_msgs", state["messages"] / config["max_msgs"]
    if config.get("max_bytes", -1) > 0:
        yield "max_bytes", state["bytes"] / config["max_bytes"]
    if config.get("max_age", 0) > 0 and state["messages"]:
        age = now - datetime.fromtimestamp(nanoseconds(state["first_ts"]) / _NANOSECONDS, UTC)
        yield "max_age", age.total_seconds() * _NANOSECONDS / config["max_age"]


def _pending(consumer: Mapping[str, Any]) -> str:
    most = consumer["config"].get("max_ack_pending", -1)
    if most <= 0 or consumer["num_ack_pending"] < most:
        return ""
    return (
        f"consumer {consumer['name']} gives no more until something is settled: max_ack_pending is {most}. Raise it, "
        "or settle faster"
    )


def nanoseconds(time: str) -> int:
    """A time of the server's since 1970. Whole, as it is part of refs."""
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * _NANOSECONDS + int(fraction.ljust(9, "0") or 0)

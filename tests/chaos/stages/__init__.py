"""The brokers as a round needs them.

A stage is a broker that many rounds play on, one after the other; a scene is what one round has of it: a topic and
a group of its own, and looks at them by plain clients. Nothing of the sidecar is used to look.
"""

from pathlib import Path

from tests.chaos.plan import BrokerKind
from tests.chaos.stages.base import Scene, Stage
from tests.chaos.stages.kafka import KafkaStage
from tests.chaos.stages.local import LocalStage
from tests.chaos.stages.pulsar import PulsarStage

__all__ = ["Scene", "Stage", "open_stage"]

_STAGES: dict[BrokerKind, type[Stage]] = {
    BrokerKind.LOCAL: LocalStage,
    BrokerKind.KAFKA: KafkaStage,
    BrokerKind.PULSAR: PulsarStage,
}


def open_stage(broker: BrokerKind, folder: Path) -> Stage:
    """Starts the broker. Raises `Missing`."""
    return _STAGES[broker](folder)

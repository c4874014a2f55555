"""Before a group is joined: topics, and the consumer that joins."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException

from sidecar.brokers.base import SourceSpec
from sidecar.brokers.kafka import properties
from sidecar.brokers.kafka.errors import translate
from sidecar.brokers.kafka.library_logs import Chatter
from sidecar.brokers.kafka.listener import UnknownProtocol
from sidecar.brokers.kafka.options import GroupProtocol, KafkaOptions
from sidecar.model.errors import NotFound, Refused

if TYPE_CHECKING:
    from sidecar.brokers.kafka.broker import KafkaBroker


async def prepare_topics(broker: "KafkaBroker", spec: SourceSpec) -> list[str]:
    """Make the topics that are to be made; answers those that are missing. Raises `NotFound` if all are."""
    patterns = [topic for topic in spec.topics if topic.startswith("^")]
    plain = [topic for topic in spec.topics if topic not in patterns]
    for pattern in patterns:
        for topic in spec.own_topics:
            if re.match(pattern, topic):
                raise Refused(f"The pattern {pattern!r} fits {topic!r}, which is the group's own: narrow it.")
    if broker.options.create_topics:
        for topic in plain:
            await broker.ensure_topic(topic, -1)
    for topic, lanes in spec.own_topics.items():
        await broker.ensure_topic(topic, lanes)
    found = await broker.admin.topics(plain)
    missing = [topic for topic in plain if topic not in found]
    if missing and len(missing) == len(plain) and not patterns:
        raise NotFound(f"There is no topic {', '.join(map(repr, missing))}. Make it, or set `create_topics`.")
    return missing


def connector(
    options: KafkaOptions, chatter: Chatter, group: str, protocol: GroupProtocol, *, on_trial: bool
) -> Callable[[Mapping[str, Any]], Consumer]:
    """Makes a consumer with callbacks; raises `Refused` if the settings are wrong, and `UnknownProtocol` if they may be
    right with the other protocol."""

    def connect(callbacks: Mapping[str, Any]) -> Consumer:
        conf = {**properties.member(options, group, protocol), **callbacks}
        try:
            return Consumer(conf, logger=chatter.logger)
        except KafkaException as error:
            if on_trial:
                raise UnknownProtocol from error
            raise translate(error, "use the settings") from error

    return connect

"""Apache Kafka, over confluent-kafka (librdkafka). Read in this order:

options            the settings, their validation, and the properties of librdkafka that they result in
errors             errors of librdkafka as broker errors
library_logs       what librdkafka reports by itself: log lines, and why connections fail
forgotten_brokers  when a client of librdkafka must be replaced
broker             the contract's `Broker`: owns all others
admin              topics and the ends of lanes
producer           publishing

consumer/          the contract's `Source`: consuming as a member of a group; its map is in its `__init__`
records            pure: messages of librdkafka to frames, and the header that broadcasts use
poll_buffer        records between the poll thread and the event loop
commit_metadata    pure: the metadata of commits, with the acks beyond a position
offset_client      reads and stores the positions of a group without being a member of it

ranges             reads a run of a lane without a group
range_cursor       the contract's `Cursor`: the positions of a group that is read by ranges
"""

from sidecar.brokers.kafka.broker import KafkaBroker
from sidecar.brokers.kafka.options import KafkaOptions

__all__ = ["KafkaBroker", "KafkaOptions"]

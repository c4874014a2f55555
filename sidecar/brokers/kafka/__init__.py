"""Apache Kafka, over confluent-kafka.

options         what can be set
checks          what users may not set, and what options must be to each other
properties      what librdkafka is told: what users pass through, and what is not theirs to set
broker          the contract's Broker: owns all the others
consumer/       consuming as a member of a group; its map is in its `__init__`
poll_buffer     what the poll thread has ready for the event loop
lanes           where a member is in its lanes
waste           what is fetched in vain
joining         topics, and the consumer that joins
listener        what the poll thread tells, and inbox, what is asked of it
offset_client   asking for and pinning positions without being a member
starting        pure: where a lane starts, by what Kafka has stored
metadata        pure: the acks beyond a position, as text beside it
records         pure: messages to frames
broadcast       every pod gets every record
admin           topics and the ends of lanes
producer        publishing
ranges          reading without a group
cursor          the positions of a group that is read by ranges
errors          what Kafka says, in one sentence and as one of our errors
library_logs    the library's own log lines
"""

from sidecar.brokers.kafka.broker import KafkaBroker
from sidecar.brokers.kafka.options import KafkaOptions

__all__ = ["KafkaBroker", "KafkaOptions"]

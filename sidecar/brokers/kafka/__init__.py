"""Apache Kafka, over confluent-kafka.

options      what can be set
checks       what users may not set, and what options must be to each other
properties   what librdkafka is told: what users pass through, and what is not theirs to set
broker       the contract's Broker: owns all the others
source       the contract's Source: the group of a subscription's topics, and that of its retry topic
group        a member of one group, as the event loop sees it
member       the thread that owns the consumer: it polls, always
listener     what it tells, and inbox, what is asked of it
joining      topics, and the consumer that joins
rebalance    lanes that come and go, within a poll
steering     pausing, resuming and placing lanes
commits      telling Kafka how far lanes have come, one commit at a time
shelf        what the thread has ready for the event loop
lanes        where a member is in its lanes
waste        what is fetched in vain
clerk        asking for and pinning positions without being a member
locating     finding out where lanes start, go on and are moved to
errands      what the event loop finds out for the thread
starting     pure: where a lane starts, by what Kafka has stored
metadata     pure: the acks beyond a position, as text beside it
records      pure: messages to frames
broadcast    every pod gets every record
admin        topics and the ends of lanes
producer     publishing
ranges       reading without a group
cursor       the positions of a group that is read by ranges
health       what is wrong with connection, group and topics, and when it is over
errors       what Kafka says, in one sentence and as one of our errors
chatter      the library's own log lines
"""

from sidecar.brokers.kafka.broker import KafkaBroker
from sidecar.brokers.kafka.options import KafkaOptions

__all__ = ["KafkaBroker", "KafkaOptions"]

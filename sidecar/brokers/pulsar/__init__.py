"""Apache Pulsar, over pulsar-client. Where to start: `broker`, then `source`, then `lane`.

options         what can be configured, and checks of it
broker          the contract's Broker: owns everything below
source          the contract's Source: the lanes of one group, and the checks that run beside consuming
lane            one lane of a source: one consumer of the library, what it has received, what it must ack
joining         creating the consumers of lanes: where a group starts, in which order, and when to try again
unacked         pure: the position of each message from its arrival to its ack
stall_detector  pure: lanes that the broker, or the library, has stopped delivering
positions       pure: message ids as ascending numbers, and counting entries between them
records         pure: messages to frames, and what is published to messages
topics          names of topics, partitions and patterns, and the lanes that a group consumes
producers       publishing
ranges          reading without a group
range_cursor    the contract's Cursor: the positions of a group that is read by ranges
admin           the admin API over HTTP: topics, subscriptions, ends of lanes
client_threads  the client library, and the threads for its calls that block
errors          the library's errors as ours, and why a broker cannot be reached
"""

from sidecar.brokers.pulsar.broker import PulsarBroker
from sidecar.brokers.pulsar.options import PulsarOptions

__all__ = ["PulsarBroker", "PulsarOptions"]

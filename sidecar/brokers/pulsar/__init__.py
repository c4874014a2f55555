"""Apache Pulsar, over pulsar-client.

options      what can be set, and `checks`: what options and subscriptions must be to each other
broker       the contract's Broker: owns all the others
source       the contract's Source: one group's consumption, as the event loop sees it
lane         one lane of it: one consumer of the library
turns        pure: what a poll takes of the lanes that have something
opening      joining a lane: where the group is in it, and a consumer that goes on from there
firsts       pure: which lanes a group begins with, and which came later
held         pure: which message stands at which position, from its arrival to its ack
positions    pure: message ids as ascending numbers
records      pure: messages to frames, and what is published to messages
suspicion    pure: lanes that stand still by a mistake of the broker
withheld     pure: lanes with messages that the library keeps to itself
resting      pure: lanes that fail as soon as they are joined anew
names        pure: topics as Pulsar calls them
discovery    which lanes there are
admin        the admin API: topics, cursors, ends of lanes
producers    publishing
ranges       reading without a group
cursor       the positions of a group that is read by ranges
ledgers      pure: counting entries from one position to another
library      the calls of pulsar-client that may block, in threads
reaching     why a broker cannot be reached
errors       what Pulsar says, in one sentence and as one of our errors
"""

from sidecar.brokers.pulsar.broker import PulsarBroker
from sidecar.brokers.pulsar.options import PulsarOptions

__all__ = ["PulsarBroker", "PulsarOptions"]

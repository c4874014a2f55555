"""Whether a client has forgotten all brokers. It never works again, and reports nothing: only its statistics tell.

librdkafka forgets every broker that Kafka does not name. Kafka that was frozen may name none for a moment, and still
tell of topics. Then librdkafka (2.16) starts over with `bootstrap.servers`. But if a connection broke earlier just as
metadata came over it, this metadata cancelled such a beginning, and left a mark that it is under way: there is never
another one.
"""

from collections.abc import Mapping
from typing import Any

#: milliseconds between reports
STATISTICS_INTERVAL = 10_000


def has_forgotten_brokers(statistics: Mapping[str, Any]) -> bool:
    """By the library's statistics. What is left is the place of the coordinator, without an address.

    This is also so for the milliseconds until the library starts over. A client that is replaced then works, too.
    """
    return all(broker["source"] == "logical" for broker in statistics["brokers"].values())

"""The queues of a topic with several lanes, where the broker's queues have no parts of their own. Pure.

Lane 0 is the queue with the topic's own name, so that a topic of one lane is a plain queue. Lane n is the queue with
the name and n, so that lanes can be added later.
"""

from collections.abc import Awaitable, Callable

from sidecar.model.errors import NotFound
from sidecar.model.records import Lane


def queue_name(lane: Lane, separator: str = ".") -> str:
    """The name of the queue that is a lane. `separator` is one that the broker allows in names."""
    return f"{lane.topic}{separator}{lane.number}" if lane.number else lane.topic


async def count_lanes(topic: str, exists: Callable[[Lane], Awaitable[bool]]) -> int:
    """How many lanes a topic has, by asking for one queue after the other. Raises `NotFound`."""
    lanes = 0
    while await exists(Lane(topic, lanes)):
        lanes += 1
    if not lanes:
        raise NotFound(f"There is no queue {topic!r}.")
    return lanes

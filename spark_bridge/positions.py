"""Where a reader is: the next position of each lane, and the offset that Spark stores in its checkpoint."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from offramp.v1 import log_pb2 as pb
from spark_bridge.errors import WrongCheckpoint

#: the format of offsets in checkpoints; a bridge reads its own version and older ones
VERSION = 1


class Lane(NamedTuple):
    """One ordered stream of a subscription."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Lane":
        """The opposite of `str`. Raises `ValueError`."""
        # From the right: the name of a Pulsar topic has slashes.
        topic, slash, number = text.rpartition("/")
        if not (topic and slash and number.isdecimal()):
            raise ValueError(f'"{text}" is not topic/lane, as in "orders/0"')
        return cls(topic, int(number))


#: the next position to read in each lane
Positions = dict[Lane, int]


def from_wire(positions: Iterable[pb.LanePosition]) -> Positions:
    return {Lane(one.topic, one.lane): one.position for one in positions}


def to_wire(positions: Mapping[Lane, int]) -> list[pb.LanePosition]:
    return [pb.LanePosition(topic=lane.topic, lane=lane.number, position=at) for lane, at in positions.items()]


def to_offset(subscription: str, positions: Mapping[Lane, int]) -> dict[str, Any]:
    """What Spark writes to its checkpoint. Equal positions give equal JSON: so Spark sees that there is nothing new."""
    lanes = {str(lane): positions[lane] for lane in sorted(positions)}
    return {"v": VERSION, "subscription": subscription, "lanes": lanes}


def from_offset(offset: object, subscription: str) -> Positions:
    """The positions of an offset. Raises `WrongCheckpoint` if it does not belong to this subscription."""
    if not isinstance(offset, dict) or "subscription" not in offset or not isinstance(offset.get("v"), int):
        raise WrongCheckpoint(
            f"the checkpoint has {json.dumps(offset)}, which is not an offset of Offramp: it belongs to a query with "
            "another source. Give this query a checkpointLocation of its own"
        )
    if offset["v"] > VERSION:
        raise WrongCheckpoint(
            f"the checkpoint was written by a newer bridge: its format is {offset['v']}, this one reads {VERSION}"
        )
    if offset["subscription"] != subscription:
        raise WrongCheckpoint(
            f'the checkpoint belongs to the subscription "{offset["subscription"]}", and this query reads '
            f'"{subscription}". Give each query a checkpointLocation of its own'
        )
    return {Lane.parse(lane): int(at) for lane, at in offset["lanes"].items()}


def parse_positions(text: str) -> Positions:
    """Parses the option value `{"orders/0": 17, ...}`. Raises `ValueError`."""
    try:
        given = json.loads(text)
        positions = {Lane.parse(lane): at for lane, at in given.items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f'it is not {{"topic/lane": position, ...}}: {error}') from error
    for lane, at in positions.items():
        if not isinstance(at, int) or isinstance(at, bool) or at < 0:
            raise ValueError(f"the position of {lane} is {json.dumps(at)}; it must be 0 or more")
    return positions

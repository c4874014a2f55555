"""Lanes with messages that the library keeps to itself. Pure.

Nothing tells of such a message but a gap that stays: the broker has no ack for it, and it is not here. It is looked for
twice: one that comes in chunks takes its time.
"""

from collections.abc import Collection

from sidecar.brokers.pulsar.positions import unpack
from sidecar.brokers.pulsar.suspicion import Suspect
from sidecar.model.records import Lane


class Withheld:
    """What was seen at the last look at each lane."""

    def __init__(self) -> None:
        #: where gaps begin
        self._gaps: dict[Lane, int] = {}
        #: those that have stayed
        self._stayed: dict[Lane, int] = {}

    def look(self, lane: Suspect, acked_before: int) -> None:
        """`acked_before`: the broker has acks for all before it; 0 if that is not known."""
        before = self._gaps.pop(lane.lane, -1)
        self._stayed.pop(lane.lane, None)
        if acked_before and lane.held.is_past_a_gap:
            self._gaps[lane.lane] = acked_before
            if acked_before == before:
                self._stayed[lane.lane] = acked_before

    def trouble(self, lanes: Collection[Lane]) -> str:
        """What an operator should know of these lanes; empty if all is well."""
        for lane, position in self._stayed.items():
            if lane in lanes:
                ledger, entry, _ = unpack(position)
                return (
                    f"Pulsar: {lane} has a message at {ledger}:{entry} that does not come and is not acked: it is "
                    "encrypted, or its chunks are not complete"
                )
        return ""

"""Which disturbances explain that a record is delivered again. Pure.

Nothing else is a reason: a full disk holds commits back, a clock that jumps loses nothing, and a worker that is frozen
or slow to reach is a reason only where leases expire.
"""

from collections.abc import Collection

from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.history import History

#: after which a lane may restart from its commits, without the acks that were not committed. With the embedded broker,
#: only the end of the sidecar does that. A lane of Kafka moves whenever the group changes, or a member or the broker
#: seems to be dead. Pulsar sends unacked messages again to the next consumer, and does not confirm acks, so they may be
#: lost with a connection.
_MOVES = frozenset(
    (
        DisturbanceKind.SIDECAR_DOWN,
        DisturbanceKind.SIDECAR_JOINED,
        DisturbanceKind.SIDECAR_FROZEN,
        DisturbanceKind.BROKER,
    )
)
_LANE = {"local": frozenset((DisturbanceKind.SIDECAR_DOWN,)), "kafka": _MOVES, "pulsar": _MOVES, "redis": _MOVES}
#: seconds for which a disturbance has effects after its end. A worker may take a batch of a dead sidecar while the next
#: one starts; a group needs its session timeout and some heartbeats until lanes have moved.
_LATE = {"local": 0.5, "kafka": 15.0, "pulsar": 15.0, "redis": 15.0}
_CUT_LATE = 2.0
#: the largest share of a lease that is over when a worker takes the batch from its queue
_QUEUED_SHARE = 0.5
#: seconds after a worker was frozen in which it takes batches that it had received before
_WORKER_RECOVERY = 0.5
#: seconds after a sidecar was frozen in which it does not know yet that its lanes have moved
_SIDECAR_RECOVERY = 1.0
#: the same after a disturbance of the broker, with the session timeout
_BROKER_RECOVERY = 5.0


class Reasons:
    def __init__(self, history: History) -> None:
        self._late = _LATE[history.broker]
        lane = _LANE[history.broker]
        several = history.broker == "pulsar" and history.variant != "exclusive"
        #: Pulsar does not tell what another sidecar held, so every record may have been processed
        self.all_possibly_processed = several
        #: Pulsar counts the deliveries of records that several sidecars share
        self.broker_counts = several
        self._lane = [one for one in history.disturbances if one.kind in lane]
        self._sidecar_frozen = [one for one in self._lane if one.kind is DisturbanceKind.SIDECAR_FROZEN]
        self._worker_ended = _of_kind(history, DisturbanceKind.WORKER_ENDED)
        self._worker_frozen = _of_kind(history, DisturbanceKind.WORKER_FROZEN)
        self._app_cut = _of_kind(history, DisturbanceKind.APP_CUT)
        self._lease = history.lease
        self._began = history.notes[0].at if history.notes else 0.0

    def lane_began_again(self, since: float, by: float) -> bool:
        """Whether what was settled after `since` may have come again by then."""
        return _any(self._lane, since - self._late, by)

    def session_ended(self, writer: str, since: float, by: float) -> bool:
        """Whether a worker that took something at `since` may have been considered dead by then."""
        since = self.had_since(writer, since)
        gone = [disturbance for disturbance in self._worker_ended if disturbance.whom == writer]
        return _any(gone, since, by) or _any(self._app_cut, since - _CUT_LATE, by)

    def session_lost(self, writer: str, since: float, by: float) -> bool:
        """Whether the record that a worker took at `since` may have been delivered to another by then."""
        return (
            self.session_ended(writer, since, by)
            or self.lane_began_again(self.had_since(writer, since), by)
            or self._lease_ended(writer, since, by)
        )

    def just_woke(self, at: float) -> bool:
        """Whether a sidecar whose lanes may have moved may have delivered then what it had fetched before."""
        return any(one.at <= at <= one.until + _SIDECAR_RECOVERY for one in self._sidecar_frozen)

    def was_out_of_touch(self, since: float, by: float) -> bool:
        """Whether a sidecar may not have known by then that a lane had moved at `since`: it was frozen or could not
        reach the broker, and perhaps still is."""
        return any(
            disturbance.at <= by and since <= disturbance.until + _BROKER_RECOVERY
            for disturbance in self._lane
            if disturbance.kind in (DisturbanceKind.SIDECAR_FROZEN, DisturbanceKind.BROKER)
        )

    def had_since(self, writer: str, at: float) -> float:
        """When a worker may have received what it took then: a frozen one takes it late."""
        return min(
            (
                disturbance.at
                for disturbance in self._freezes_of(writer)
                if disturbance.at <= at <= disturbance.until + _WORKER_RECOVERY
            ),
            default=at,
        )

    def _freezes_of(self, writer: str) -> list[Disturbance]:
        return [disturbance for disturbance in self._worker_frozen if disturbance.whom in (writer, "")]

    def _lease_ended(self, writer: str, since: float, by: float) -> bool:
        if not self._lease:
            return False
        frozen = self._freezes_of(writer)
        return by - since >= self._lease * (1 - _QUEUED_SHARE) or _any(frozen, since - self._lease, by)

    def in_doubt(self, by: float) -> bool:
        """Whether there may have been a delivery by then that is in no journal, or a lane that was assigned again."""
        return self._leases_over(by) > 0 or any(
            disturbance.at <= by for disturbance in (*self._lane, *self._worker_ended, *self._app_cut)
        )

    def attempts_lost(self, by: float) -> int:
        """How many attempts of a record may have been counted by then that are in no journal."""
        return self.sessions_lost(by) + self._leases_over(by)

    def _leases_over(self, by: float) -> int:
        """How many leases of a record may have ended by then, one after the other, before a worker took it."""
        return int((by - self._began) / (self._lease * (1 - _QUEUED_SHARE))) if self._lease else 0

    def sessions_lost(self, by: float) -> int:
        """How many sessions may have ended by then with a record that their workers had not taken yet."""
        gone = {disturbance.whom for disturbance in self._worker_ended if disturbance.at <= by}
        return len(gone) + sum(disturbance.at <= by for disturbance in self._app_cut)


def _of_kind(history: History, kind: DisturbanceKind) -> list[Disturbance]:
    return [one for one in history.disturbances if one.kind is kind]


def _any(disturbances: Collection[Disturbance], since: float, by: float) -> bool:
    return any(disturbance.at <= by and since <= disturbance.until for disturbance in disturbances)

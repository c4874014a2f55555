"""Which disturbances explain that a record comes again. Pure.

What is not named here is no reason: a full disk holds commits back, a clock that jumps loses nothing, and a worker that
is frozen, or slow to reach, does only where leases end.
"""

from collections.abc import Collection

from tests.chaos.checker.disturbances import Disturbance, DisturbanceKind
from tests.chaos.checker.history import History

#: by which a lane may begin again at what is committed, and so forget acks that were not. The embedded broker ends with
#: its sidecar, and nothing else can come between. A lane of Kafka moves whenever the group changes, or a member or
#: the broker seems to be gone. Pulsar sends again what is unacked to whoever connects, and an ack that it was sent is
#: not confirmed: it may be lost with a connection.
_LANE: dict[str, frozenset[DisturbanceKind]] = {
    "local": frozenset((DisturbanceKind.DOWN,)),
    "kafka": frozenset((DisturbanceKind.DOWN, DisturbanceKind.JOINED, DisturbanceKind.FROZEN, DisturbanceKind.BROKER)),
    "pulsar": frozenset((DisturbanceKind.DOWN, DisturbanceKind.JOINED, DisturbanceKind.FROZEN, DisturbanceKind.BROKER)),
}
#: seconds after a disturbance in which it still has effects. A worker may take a batch of a sidecar that is dead while
#: the next one is still being loaded; a group needs its session timeout and some heartbeats until lanes have moved.
_LATE = {"local": 0.5, "kafka": 15.0, "pulsar": 15.0}
_CUT_LATE = 2.0
#: of a lease, that is over at the most when a worker takes what it has: it may have had it in its queue for a while
_WAITED = 0.5
#: seconds after a worker is itself again in which it takes what it has had since before
_ROUSED = 0.5
#: and after a sidecar is, in which it does not know yet that its lanes went to another
_WOKE = 1.0
#: the same after the broker is, with a session timeout in which it takes members for gone
_SILENT = 5.0


class Reasons:
    def __init__(self, history: History) -> None:
        self._late = _LATE[history.broker]
        lane = _LANE[history.broker]
        several = history.broker == "pulsar" and history.variant != "exclusive"
        #: Pulsar does not tell what another sidecar had in hand before: every record may have been
        self.all_are_doubtful = several
        #: Pulsar counts for itself how often it sent a record that several sidecars share
        self.broker_counts = several
        self._lane = [disturbance for disturbance in history.disturbances if disturbance.kind in lane]
        self._frozen = [disturbance for disturbance in self._lane if disturbance.kind is DisturbanceKind.FROZEN]
        self._gone = [disturbance for disturbance in history.disturbances if disturbance.kind is DisturbanceKind.GONE]
        self._numb = [disturbance for disturbance in history.disturbances if disturbance.kind is DisturbanceKind.NUMB]
        self._lease = history.lease
        self._began = history.notes[0].at if history.notes else 0.0
        self._cut = [disturbance for disturbance in history.disturbances if disturbance.kind is DisturbanceKind.CUT]

    def lane_began_again(self, since: float, by: float) -> bool:
        """Whether what was settled after `since` may have come again by then."""
        return _any(self._lane, since - self._late, by)

    def session_ended(self, writer: str, since: float, by: float) -> bool:
        """Whether a worker that took something at `since` may have been taken for dead by then."""
        since = self.had_since(writer, since)
        gone = [disturbance for disturbance in self._gone if disturbance.whom == writer]
        return _any(gone, since, by) or _any(self._cut, since - _CUT_LATE, by)

    def session_lost(self, writer: str, since: float, by: float) -> bool:
        """Whether what a worker took at `since` may have been given to another by then."""
        return (
            self.session_ended(writer, since, by)
            or self.lane_began_again(self.had_since(writer, since), by)
            or self._lease_ended(writer, since, by)
        )

    def just_woke(self, at: float) -> bool:
        """Whether a sidecar whose lanes may have gone to another may have sent then what it had fetched before."""
        return any(disturbance.at <= at <= disturbance.until + _WOKE for disturbance in self._frozen)

    def was_out_of_touch(self, since: float, by: float) -> bool:
        """Whether a sidecar may not have known by then that a lane had gone to another at `since`: it was frozen or did
        not reach the broker, when it was taken for gone, and perhaps still is."""
        return any(
            disturbance.at <= by and since <= disturbance.until + _SILENT
            for disturbance in self._lane
            if disturbance.kind in (DisturbanceKind.FROZEN, DisturbanceKind.BROKER)
        )

    def had_since(self, writer: str, at: float) -> float:
        """Since when a worker may have had what it took then: one that was frozen did not look at it for a while."""
        return min(
            (
                disturbance.at
                for disturbance in self._numb_ones(writer)
                if disturbance.at <= at <= disturbance.until + _ROUSED
            ),
            default=at,
        )

    def _numb_ones(self, writer: str) -> list[Disturbance]:
        return [disturbance for disturbance in self._numb if disturbance.whom in (writer, "")]

    def _lease_ended(self, writer: str, since: float, by: float) -> bool:
        if not self._lease:
            return False
        numb = self._numb_ones(writer)
        return by - since >= self._lease * (1 - _WAITED) or _any(numb, since - self._lease, by)

    def in_doubt(self, by: float) -> bool:
        """Whether there may have been a delivery by then that nobody wrote down, or a lane that was assigned anew."""
        return self._leases_over(by) > 0 or any(
            disturbance.at <= by for disturbance in (*self._lane, *self._gone, *self._cut)
        )

    def attempts_lost(self, by: float) -> int:
        """How many attempts of a record may have been counted by then that nobody wrote down."""
        return self.sessions_lost(by) + self._leases_over(by)

    def _leases_over(self, by: float) -> int:
        """How many leases of a record may have ended by then, one after the other, before a worker looked at it."""
        return int((by - self._began) / (self._lease * (1 - _WAITED))) if self._lease else 0

    def sessions_lost(self, by: float) -> int:
        """How many sessions may have ended by then with a record that their workers had not taken yet."""
        gone = {disturbance.whom for disturbance in self._gone if disturbance.at <= by}
        return len(gone) + sum(disturbance.at <= by for disturbance in self._cut)


def _any(disturbances: Collection[Disturbance], since: float, by: float) -> bool:
    return any(disturbance.at <= by and since <= disturbance.until for disturbance in disturbances)

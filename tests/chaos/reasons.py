"""Which upsets explain that a record comes again. Pure.

What is not named here is no reason: a full disk holds commits back, a clock that jumps loses nothing, and a worker that
is frozen, or slow to reach, does only where leases end.
"""

from collections.abc import Collection

from tests.chaos.history import History
from tests.chaos.upsets import Trouble, Upset

#: by which a lane may begin again at what is committed, and so forget acks that were not. The embedded broker ends with
#: its sidecar, and nothing else can come between. A lane of Kafka moves whenever the group changes, or a member or
#: the broker seems to be gone. Pulsar sends again what is unacked to whoever connects, and an ack that it was sent is
#: not confirmed: it may be lost with a connection.
_LANE: dict[str, frozenset[Trouble]] = {
    "local": frozenset((Trouble.DOWN,)),
    "kafka": frozenset((Trouble.DOWN, Trouble.JOINED, Trouble.FROZEN, Trouble.BROKER)),
    "pulsar": frozenset((Trouble.DOWN, Trouble.JOINED, Trouble.FROZEN, Trouble.BROKER)),
}
#: seconds after an upset in which it still has effects. A worker may take a batch of a sidecar that is dead while the
#: next one is still being loaded; a group needs its session timeout and some heartbeats until lanes have moved.
_LATE = {"local": 0.5, "kafka": 15.0, "pulsar": 15.0}
_CUT_LATE = 2.0
#: of a lease, that is over at the most when a worker takes what it has: it may have had it in its queue for a while
_WAITED = 0.5
#: seconds after a worker is itself again in which it takes what it has had since before
_ROUSED = 0.5
#: and after a sidecar is, in which it does not know yet that its lanes went to another
_WOKE = 1.0


class Reasons:
    def __init__(self, history: History) -> None:
        self._late = _LATE[history.broker]
        lane = _LANE[history.broker]
        several = history.broker == "pulsar" and history.variant != "exclusive"
        #: Pulsar does not tell what another sidecar had in hand before: every record may have been
        self.all_are_doubtful = several
        #: Pulsar counts for itself how often it sent a record that several sidecars share
        self.broker_counts = several
        self._lane = [upset for upset in history.upsets if upset.trouble in lane]
        self._frozen = [upset for upset in self._lane if upset.trouble is Trouble.FROZEN]
        self._gone = [upset for upset in history.upsets if upset.trouble is Trouble.GONE]
        self._numb = [upset for upset in history.upsets if upset.trouble is Trouble.NUMB]
        self._lease = history.lease
        self._began = history.notes[0].at if history.notes else 0.0
        self._cut = [upset for upset in history.upsets if upset.trouble is Trouble.CUT]

    def lane_began_again(self, since: float, by: float) -> bool:
        """Whether what was settled after `since` may have come again by then."""
        return _any(self._lane, since - self._late, by)

    def session_ended(self, writer: str, since: float, by: float) -> bool:
        """Whether a worker that took something at `since` may have been taken for dead by then."""
        since = self.had_since(writer, since)
        gone = [upset for upset in self._gone if upset.whom == writer]
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
        return any(upset.at <= at <= upset.until + _WOKE for upset in self._frozen)

    def had_since(self, writer: str, at: float) -> float:
        """Since when a worker may have had what it took then: one that was frozen did not look at it for a while."""
        return min(
            (upset.at for upset in self._numb_ones(writer) if upset.at <= at <= upset.until + _ROUSED), default=at
        )

    def _numb_ones(self, writer: str) -> list[Upset]:
        return [upset for upset in self._numb if upset.whom in (writer, "")]

    def _lease_ended(self, writer: str, since: float, by: float) -> bool:
        if not self._lease:
            return False
        numb = self._numb_ones(writer)
        return by - since >= self._lease * (1 - _WAITED) or _any(numb, since - self._lease, by)

    def in_doubt(self, by: float) -> bool:
        """Whether there may have been a delivery by then that nobody wrote down, or a lane that was assigned anew."""
        return self._leases_over(by) > 0 or any(upset.at <= by for upset in (*self._lane, *self._gone, *self._cut))

    def attempts_lost(self, by: float) -> int:
        """How many attempts of a record may have been counted by then that nobody wrote down."""
        return self.sessions_lost(by) + self._leases_over(by)

    def _leases_over(self, by: float) -> int:
        """How many leases of a record may have ended by then, one after the other, before a worker looked at it."""
        return int((by - self._began) / (self._lease * (1 - _WAITED))) if self._lease else 0

    def sessions_lost(self, by: float) -> int:
        """How many sessions may have ended by then with a record that their workers had not taken yet."""
        gone = {upset.whom for upset in self._gone if upset.at <= by}
        return len(gone) + sum(upset.at <= by for upset in self._cut)


def _any(upsets: Collection[Upset], since: float, by: float) -> bool:
    return any(upset.at <= by and since <= upset.until for upset in upsets)

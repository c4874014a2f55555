"""Lanes that fail as soon as they are joined anew: they rest, so that trying again is no loop without a pause. Pure."""

from math import inf

from sidecar.model.records import Lane

#: seconds within which a lane that was joined anew must not fail again
_SOON = 10.0
#: seconds for which one that does so is left alone
_REST = 10.0


class Resting:
    """The lanes of one group that rest now, or did and have not lasted since."""

    def __init__(self) -> None:
        #: when lanes were joined anew
        self._joined: dict[Lane, float] = {}
        #: when rests end
        self._until: dict[Lane, float] = {}
        #: why they failed
        self._why: dict[Lane, str] = {}

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._until

    def joined(self, lane: Lane, now: float) -> None:
        """Anew: it had failed before."""
        self._joined[lane] = now

    def failed(self, lane: Lane, why: str, now: float) -> None:
        if now - self._joined.get(lane, -inf) < _SOON:
            self._until[lane] = now + _REST
            self._why[lane] = why

    def ended(self, now: float) -> bool:
        """Some may be joined again."""
        due = [lane for lane, until in self._until.items() if until <= now]
        for lane in due:
            del self._until[lane]
        return bool(due)

    def trouble(self, now: float) -> str:
        """What an operator should know; empty once all of them last."""
        for lane in [*self._why]:
            if lane not in self._until and now - self._joined[lane] >= _SOON:
                del self._why[lane]
        # One stands for all: mostly they have the same reason.
        return next((f"{lane} fails whenever it is joined: {why}" for lane, why in self._why.items()), "")

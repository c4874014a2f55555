"""Random faults of the broker."""

from tests.simulation.world import World

#: every fault, and the largest share of calls in which it occurs
RATES = {
    "open fails": 0.5,
    "poll fails": 0.05,
    "poll is slow": 0.1,
    "poll repeats records": 0.1,
    "poll leaks a paused lane": 0.3,
    "commit fails": 0.3,
    "commit fails after it was applied": 0.2,
    "commit hangs": 0.05,
    "commit is slow": 0.2,
    "dead letter fails": 0.4,
    "dead letter fails after it was written": 0.6,
    "dead letter is slow": 0.5,
    "dead letter is written in part": 0.9,
    "dead letter is refused for a while": 0.3,
    "park is refused for a while": 0.3,
    "park fails": 0.4,
    "park fails after it was written": 0.6,
    "park is slow": 0.5,
    "park is written in part": 0.9,
    "pause is slow": 0.2,
    "seek fails": 0.3,
}


class Faults:
    """A random choice of `RATES`, each with a random rate: some histories have few faults and some have many."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self._world = world
        self.on = True
        share = rng.choice((0.0, 0.2, 0.5))
        self._rates = {name: rate * rng.random() for name, rate in RATES.items() if rng.random() < share}
        if rng.random() < 0.3:
            # Batches with several records for a side topic are rare, so make this one certain.
            self._rates["dead letter is written in part"] = 1.0
        self._until: dict[str, float] = {}

    def occurs(self, name: str) -> bool:
        """Whether the fault occurs in this call."""
        rate = self._rates.get(name, 0.0)
        if not self.on or (rate == 0.0 and self._until.get(name, 0.0) <= self._world.now):
            return False
        if self._until.get(name, 0.0) <= self._world.now and self._world.rng.random() >= rate:
            return False
        self._world.exercised(name)
        return True

    def force_until(self, name: str, time: float) -> None:
        """Until then, the fault occurs in every call."""
        self._until[name] = time

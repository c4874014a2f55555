"""The audit for the embedded broker, which also tells how each stay in the retry topic ended."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.load import audit, origins
from tests.e2e.load.audit import Stored
from tests.e2e.load.database import Database, headers_of
from tests.e2e.load.journal import Spot
from tests.e2e.load.processes import TOPIC, Publisher, Workers, settle_everything


@dataclass
class EmbeddedSnapshot(audit.BrokerSnapshot):
    #: by origin, oldest first: whether that stay in the retry topic is over, as far as the group is concerned
    stays: dict[Spot, list[bool]] = field(default_factory=lambda: defaultdict(list))


class EmbeddedAudit(audit.JournalAudit):
    """Compares journals with the file."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self.snapshot = EmbeddedSnapshot()
        self._data = data

    def check(self, workers: Workers) -> None:
        """Nothing is committed that no worker acked. May be asked at any time."""
        # The file first: then the acks for its commits are in the journals.
        self.snapshot = _take_snapshot(self._data)
        self.read(workers.journals)
        early = self.committed_too_early(self.snapshot)
        early += [
            f"{spot} {self.snapshot.records[spot]} was parked and is committed in the retry topic"
            for spot, stays in self.snapshot.stays.items()
            if stays[-1] and spot not in self.acked and spot not in self.snapshot.dead
        ]
        assert not early, early[:10]

    def not_committed(self) -> list[str]:
        """Records that were answered SETTLED and were not committed at the latest check."""
        waiting = (spot for spot, stays in self.snapshot.stays.items() if spot in self.settled and not stays[-1])
        return [*self.settled_and_not_committed(self.snapshot), *(f"{spot}, which is parked" for spot in waiting)]

    def finish(self, workers: Workers, load: Publisher) -> EmbeddedSnapshot:
        """Settles everything, stops the sidecar, and checks that each record was acked or is a dead letter."""
        load.stop()
        settle_everything(workers, load)
        assert workers.sidecar.terminate() == 0
        self.check(workers)
        for problems in (self.unaccounted(self.snapshot), self.not_committed()):
            assert not problems, problems[:10]
        assert load.confirmed <= {stored.value for stored in self.snapshot.records.values()}
        assert not self.surprises
        return self.snapshot


def _take_snapshot(data: Path) -> EmbeddedSnapshot:
    database = Database(data)
    snapshot = EmbeddedSnapshot()
    for record in database.records(TOPIC):
        snapshot.records[Spot(record.lane, record.position)] = Stored(record.key, record.value)
    over: set[Spot] = set()
    for topic, lane, runs in database.cursors(TOPIC):
        done = (Spot(lane, position) for start, stop in runs for position in range(start, stop))
        (snapshot.committed if topic == TOPIC else over).update(done)
    for record in database.records(f"{TOPIC}.offramp.retry"):
        snapshot.stays[origins.of_parked(headers_of(record))].append(Spot(record.lane, record.position) in over)
    snapshot.parked = {*snapshot.stays}
    for record in database.records(f"{TOPIC}.offramp.dead"):
        told = headers_of(record)
        snapshot.dead[origins.of_letter(told)] = told["offramp-reason"]
    return snapshot

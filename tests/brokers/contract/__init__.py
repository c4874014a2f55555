"""The adapter contract as tests: what the core may rely on from every broker.

A broker joins with a harness and one class:

    class TestKafka(AdapterContract):
        @pytest.fixture
        def harness(self) -> Harness: ...

What its traits do not claim is skipped, and nothing else. The promises of the whole sidecar on a broker are another
suite, in tests/promises, which uses the same harness.

opening     joining a group: where it starts, and which lanes it gets
polling     records: which arrive, in which order, how many at a time; fairness between lanes
pausing     pausing and resuming lanes
committing  storing positions, and continuing there after a restart
seeking     moving lanes
publishing  where messages go
reading     reading and asking without a group
cursors     the positions of a group that is read by ranges
"""

from tests.brokers.contract.committing import Committing
from tests.brokers.contract.cursors import Cursors
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.pausing import Pausing
from tests.brokers.contract.polling import Fairness, Polling
from tests.brokers.contract.publishing import Publishing
from tests.brokers.contract.reading import Reading
from tests.brokers.contract.seeking import Seeking


class AdapterContract(Opening, Polling, Fairness, Pausing, Committing, Seeking, Publishing, Reading, Cursors):
    """The whole contract. A subclass provides the fixture `harness`."""

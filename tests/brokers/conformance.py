"""The adapter contract as tests: what the core may rely on from every broker.

A broker joins with a harness and one class:

    class TestKafka(AdapterContract):
        @pytest.fixture
        def harness(self) -> Harness: ...

What its traits do not claim is skipped, and only that. The promises of the whole sidecar on a broker are another
suite, which plays with the same harness.
"""

from tests.brokers.contract.committing import Committing
from tests.brokers.contract.looking import Looking
from tests.brokers.contract.opening import Opening
from tests.brokers.contract.pausing import Pausing
from tests.brokers.contract.polling import Fairness, Polling
from tests.brokers.contract.publishing import Publishing
from tests.brokers.contract.ranging import Ranging
from tests.brokers.contract.seeking import Seeking


class AdapterContract(Opening, Polling, Fairness, Pausing, Committing, Seeking, Publishing, Looking, Ranging):
    """All of it. A subclass gives the fixture `harness`."""

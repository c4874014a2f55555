"""The simulation finds bugs: each of the mutations is found, by the promise that it breaks."""

from typing import Any

import pytest

from sidecar.core.state.ledger import Ledger
from tests.simulation.campaign import SEED, Findings, campaign
from tests.simulation.history import Result
from tests.simulation.mutations import MUTATIONS, Mutation

#: histories within which a mutation must be found; without one, all of them pass
WITHIN = 400


def search(mutation: Mutation) -> Findings:
    """Ends with the first history that breaks the promise, or in which the mutated code raises."""

    def decides(result: Result) -> bool:
        return bool(result.raised) or mutation.is_found_by(result.violation)

    with mutation.applied():
        return campaign(WITHIN, seed=SEED, until=decides)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_simulation_finds_that(mutation: Mutation) -> None:
    findings = search(mutation)
    assert findings.failures, f"{findings.histories} histories did not notice that {mutation.mistake}"
    assert not findings.raised, f"the mutation raises instead of misbehaving:\n{findings.raised[0]}"
    found = {result.violation.partition(":")[0] for result in findings.failures}
    assert any(map(mutation.is_found_by, found)), f"that {mutation.mistake} was taken for: {found}"


def test_a_mutation_that_raises_is_not_found() -> None:
    def misfit(settle: Any) -> Any:
        def wrong(self: Ledger, *run: Any) -> None:
            raise AttributeError("it does not fit the code any more")

        return wrong

    findings = search(Mutation(1, "settling a record raises", Ledger, "settle", misfit))
    assert "it does not fit the code any more" in findings.raised[0]


def test_every_promise_has_a_mutation() -> None:
    assert {mutation.promise for mutation in MUTATIONS} == set(range(1, 13))

"""The simulation can find bugs: each of these mistakes, made in the shipped code, is found."""

import pytest

from tests.simulation.campaign import campaign
from tests.simulation.mutations import MUTATIONS, Mutation

#: histories within which a mistake must be found
WITHIN = 400
#: failures among which one must name the promise that is broken
ENOUGH = 15


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_simulation_finds_that(mutation: Mutation) -> None:
    with mutation.made():
        findings = campaign(WITHIN, stop_at=ENOUGH)
    assert findings.failures, f"{findings.histories} histories did not notice that {mutation.mistake}"
    found = {told.violation.partition(":")[0] for told in findings.failures}
    assert any(map(mutation.is_found_by, found)), f"that {mutation.mistake} was taken for: {found}"


def test_every_promise_has_a_mutation() -> None:
    assert {mutation.promise for mutation in MUTATIONS} == set(range(1, 13))


def test_without_a_mistake_the_same_histories_pass() -> None:
    findings = campaign(WITHIN)
    assert not findings.failures, findings.failures[0].violation

"""Dead letters and parked records, as a broker has them."""

from collections.abc import Mapping

from tests.chaos.history import Letter, Stay
from tests.e2e.load import origins
from tests.e2e.load.journal import Spot


def letter_of(key: str | None, value: str, headers: Mapping[str, str]) -> Letter:
    return Letter(origins.of_letter(headers), key, value, headers["offramp-reason"])


def stay_of(at: Spot, headers: Mapping[str, str]) -> Stay:
    return Stay(at, origins.of_parked(headers))

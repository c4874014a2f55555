"""Dead letters and parked records, as a broker has them."""

from collections.abc import Mapping

from tests.chaos.checker.history import DeadLetter, ParkedRecord
from tests.e2e.load import origins
from tests.e2e.load.journal import Spot


def dead_letter_of(key: str | None, value: str, headers: Mapping[str, str]) -> DeadLetter:
    return DeadLetter(origins.of_letter(headers), key, value, headers["offramp-reason"])


def parked_record_of(at: Spot, headers: Mapping[str, str]) -> ParkedRecord:
    return ParkedRecord(at, origins.of_parked(headers))

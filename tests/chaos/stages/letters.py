"""How Offramp's own headers say where a record comes from, as docs/semantics.md and the proto describe it."""

import json
from collections.abc import Mapping

from tests.chaos.history import Letter, Stay
from tests.e2e.load.journal import Spot, place_of_ref


def letter_of(key: str | None, value: str, headers: Mapping[str, str]) -> Letter:
    return Letter(_origin(headers), key, value, headers["offramp-reason"])


def stay_of(at: Spot, headers: Mapping[str, str]) -> Stay:
    said = json.loads(headers["offramp-parked"])
    return Stay(at, Spot(said["lane"], _place(said["position"], said["ref"])))


def _origin(headers: Mapping[str, str]) -> Spot:
    return Spot(int(headers["offramp-lane"]), _place(int(headers["offramp-position"]), headers["offramp-ref"]))


def _place(position: int, ref: str) -> int:
    return place_of_ref(bytes.fromhex(ref).decode()) if ref else position

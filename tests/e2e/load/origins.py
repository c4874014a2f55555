"""How Offramp's own headers say where a record comes from, as docs/semantics.md and the proto describe it.

Values do not identify records: a producer that got no confirmation writes a value again.
"""

import json
from collections.abc import Mapping

from tests.e2e.load.journal import Spot, place_of_ref


def of_letter(headers: Mapping[str, str]) -> Spot:
    return Spot(int(headers["offramp-lane"]), _place(int(headers["offramp-position"]), headers["offramp-ref"]))


def of_parked(headers: Mapping[str, str]) -> Spot:
    said = json.loads(headers["offramp-parked"])
    return Spot(said["lane"], _place(said["position"], said["ref"]))


def _place(position: int, ref: str) -> int:
    return place_of_ref(bytes.fromhex(ref).decode()) if ref else position

"""The outcomes that the body of an answer names. Pure.

| body | meaning |
|---|---|
| `{"failures": [{"index": 3, "outcome": "nack", "reason": "…", "retry_after": "5s"}]}` | the others are acked |
| `{"batchItemFailures": [{"itemIdentifier": "…"}]}` | as AWS Lambda: these are nacked |
| `{"status": "RETRY"}`, `{"status": "DROP"}` | as Dapr: the record is nacked or rejected |

Any other object means that all is well.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from sidecar.model.limits import MAX_RETRY_AFTER, kept_reason
from sidecar.model.records import Outcome, Part
from sidecar.model.units import FormatError, parse_duration

_OUTCOMES = {
    "nack": Outcome.NACK,
    "reject": Outcome.REJECT,
    "release": Outcome.RELEASE,
    "overloaded": Outcome.OVERLOADED,
}
_WITH_DELAY = (Outcome.NACK, Outcome.OVERLOADED)


class BadResult(Exception):
    """The body is no result. Its text is for people."""


def parse(body: bytes, ids: Sequence[str]) -> tuple[Part, ...]:
    """The records that were not acked, ascending. `ids` are those of the batch, in order. Raises `BadResult`."""
    try:
        result = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadResult(f"the body is not JSON: {error}") from error
    if not isinstance(result, dict):
        return ()
    parts: dict[int, Part] = {}
    for number, failure in enumerate(_list(result, "failures")):
        part = _failure(failure, f"failures[{number}]", len(ids))
        if part.first in parts:
            raise BadResult(f"failures[{number}]: index {part.first} is named twice")
        parts[part.first] = part
    for number, failure in enumerate(_list(result, "batchItemFailures")):
        for index in _item(failure, f"batchItemFailures[{number}]", ids):
            parts.setdefault(index, Part(index, 1, Outcome.NACK, "named in batchItemFailures"))
    if not parts and result.get("status") in ("RETRY", "DROP"):
        # A batch is not rejected as a whole: it is split until the record is alone.
        outcome = Outcome.REJECT if result["status"] == "DROP" and len(ids) == 1 else Outcome.NACK
        return (Part(0, len(ids), outcome, f"status {result['status']}"),)
    return tuple(parts[index] for index in sorted(parts))


def _list(result: dict[str, Any], key: str) -> Sequence[Any]:
    found = result.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise BadResult(f"{key} is not a list")
    return found


def _failure(failure: Any, where: str, records: int) -> Part:
    if not isinstance(failure, dict):
        raise BadResult(f"{where} is not an object")
    index = failure.get("index")
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < records:
        raise BadResult(f"{where}: index {_shown(index)} is not among the {records} records of the batch")
    word = failure.get("outcome", "nack")
    outcome = _OUTCOMES.get(word.lower()) if isinstance(word, str) else None
    if outcome is None:
        raise BadResult(f"{where}: outcome {_shown(word)} is not one of {', '.join(_OUTCOMES)}")
    reason = failure.get("reason")
    delay = _delay(failure.get("retry_after"), where)
    text = kept_reason(reason) if isinstance(reason, str) else ""
    return Part(index, 1, outcome, text, delay if outcome in _WITH_DELAY else None)


def _delay(value: Any, where: str) -> float | None:
    """Seconds of `5s`, `5` or `"5"`."""
    if value is None:
        return None
    seconds = math.nan
    try:
        if isinstance(value, str):
            seconds = parse_duration(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
    except (FormatError, OverflowError):
        pass
    if not seconds >= 0:
        raise BadResult(f"{where}: retry_after {_shown(value)} is not a duration such as 200ms, 5s or 10m")
    return min(seconds, MAX_RETRY_AFTER)


def _item(failure: Any, where: str, ids: Sequence[str]) -> list[int]:
    id_ = failure.get("itemIdentifier") if isinstance(failure, dict) else None
    # Producers choose the ids of events, so several may have the same.
    found = [index for index, known in enumerate(ids) if known == id_]
    if not found:
        raise BadResult(f"{where}: itemIdentifier {_shown(id_)} is not among the ids of the batch")
    return found


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:100]

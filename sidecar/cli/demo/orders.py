"""The demo's records: orders of a shop, most of them plain, a few not."""

import json
import re
from enum import StrEnum

_NUMBER = re.compile(rb'"order": (\d+)')


class Kind(StrEnum):
    PLAIN = "plain"
    #: fails the first time it is tried, and works the second time
    FLAKY = "flaky"
    #: may not be handled before some time has passed
    PRE_ORDER = "pre-order"
    #: will never work, and the worker can tell
    REFUND = "refund"
    #: will never work, and the worker only sees that its whole batch fails: half of the message is missing
    TORN = "torn"


def write(number: int, kind: Kind, wait: float) -> bytes:
    """An order as it is published, about a hundred bytes."""
    cents = 100 + number * 7919 % 90_000
    order: dict[str, object] = {
        "order": number,
        "customer": f"c-{number % 9973:05}",
        "item": "coffee, 1 kg, whole beans",
    }
    match kind:
        case Kind.FLAKY:
            order["bank"] = "flaky"
        case Kind.PRE_ORDER:
            order["wait"] = wait
        case Kind.REFUND:
            cents = -cents
    text = json.dumps(order | {"cents": cents})
    return text[: len(text) // 2 if kind is Kind.TORN else None].encode()


def kind_of(text: bytes) -> Kind:
    """What an order is, by its text alone."""
    if b'"cents": ' not in text:
        return Kind.TORN
    if b'"cents": -' in text:
        return Kind.REFUND
    if b'"wait": ' in text:
        return Kind.PRE_ORDER
    return Kind.FLAKY if b'"bank": ' in text else Kind.PLAIN


def number_of(text: bytes) -> int | None:
    """The number of an order, also of a torn one. None: it is no order."""
    found = _NUMBER.search(text)
    return int(found[1]) if found else None

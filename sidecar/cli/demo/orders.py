"""The records of the demo: orders of a shop. Most are plain; a few fail on purpose."""

import json
import re
from enum import StrEnum

_NUMBER = re.compile(rb'"order": (\d+)')


class Kind(StrEnum):
    PLAIN = "plain"
    #: fails at the first attempt and succeeds at the second
    FLAKY = "flaky"
    #: asks to wait before it is processed
    PRE_ORDER = "pre-order"
    #: can never be processed; the worker rejects it
    REFUND = "refund"
    #: can never be processed, because half of it is missing; the worker only notices that the whole batch fails
    TORN = "torn"


def encode(number: int, kind: Kind, wait: float) -> bytes:
    """The value of an order, about 100 bytes."""
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
    """The kind of an order, by its text alone."""
    if b'"cents": ' not in text:
        return Kind.TORN
    if b'"cents": -' in text:
        return Kind.REFUND
    if b'"wait": ' in text:
        return Kind.PRE_ORDER
    return Kind.FLAKY if b'"bank": ' in text else Kind.PLAIN


def number_of(text: bytes) -> int | None:
    """The number of an order, also of a torn one. None if it is no order."""
    found = _NUMBER.search(text)
    return int(found[1]) if found else None

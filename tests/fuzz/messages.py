"""Valid messages of the protocol with random values of all sorts. Pure."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

#: what a field of this name may hold, to get further than the first check
Hints = Mapping[str, Sequence[Any]]

_EDGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_TEXTS = ("", "target", "nobody", "a/b", "ü€😀", "\0", "x" * 300, "../..", "*")
_NUMBERS = (0.0, -1.0, 1.0, 1e300, -1e300, float("inf"), float("nan"), 1e-300)


def fill(chance: random.Random, message: type[M], hints: Hints, depth: int = 0) -> M:
    """A message whose fields are set or not, and hold what is usual, extreme or senseless."""
    made = message()
    told: set[str] = set()
    for field in made.DESCRIPTOR.fields:
        group = field.containing_oneof
        if chance.random() < 0.35 or (group is not None and group.name in told):
            continue
        if group is not None:
            told.add(group.name)
        if field.is_repeated:
            count = chance.choice((0, 1, 1, 2, 3, 40 if depth == 0 else 4))
            for _ in range(count):
                _add(chance, made, field, hints, depth)
        else:
            _set(chance, made, field, hints, depth)
    return made


def _add(chance: random.Random, made: Message, field: FieldDescriptor, hints: Hints, depth: int) -> None:
    repeated = getattr(made, field.name)
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = repeated.add()
        if depth < 4:
            inner.CopyFrom(fill(chance, type(inner), hints, depth + 1))
    else:
        repeated.append(_value(chance, field, hints))


def _set(chance: random.Random, made: Message, field: FieldDescriptor, hints: Hints, depth: int) -> None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = getattr(made, field.name)
        if depth < 4:
            inner.CopyFrom(fill(chance, type(inner), hints, depth + 1))
        inner.SetInParent()
    else:
        setattr(made, field.name, _value(chance, field, hints))


def _value(chance: random.Random, field: FieldDescriptor, hints: Hints) -> Any:
    hinted = hints.get(field.name)
    # All are drawn, whatever there is to choose from: what a sidecar has sent back must not change what comes next.
    made, whether, which = _made(chance, field), chance.random(), chance.random()
    return hinted[int(which * len(hinted))] if hinted and whether < 0.8 else made


def _made(chance: random.Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice((0, 1, 8, 16, 24, 1000)))
        case FieldDescriptor.CPPTYPE_STRING:
            return chance.choice(_TEXTS)
        case FieldDescriptor.CPPTYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return chance.choice((*known, *known, 99, -1))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return chance.choice(_NUMBERS) if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else 1.0
        case _:
            low, high = _EDGES[field.cpp_type]
            return chance.choice((max(low, 0), 1, 2, 10, 1000, low, high, chance.randint(low, high)))

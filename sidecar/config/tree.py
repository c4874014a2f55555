"""The configuration as it is written, before it has types: texts, lists and tables that know their line.

Nodes are immutable, since an alias of the file may stand in several places. Setting a key makes a new tree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from sidecar.config.messages import one_line


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where something is written. Sorts by the lines of the file, then the environment, then options."""

    rank: int
    line: int
    #: `offramp.yaml:14`, `OFFRAMP_LISTEN__SOCKET`, `--set`
    text: str

    @classmethod
    def file(cls, name: str, line: int) -> Self:
        return cls(0, line, f"{name}:{line}" if line else name)

    @classmethod
    def variable(cls, name: str) -> Self:
        return cls(1, 0, name)

    @classmethod
    def option(cls) -> Self:
        return cls(2, 0, "--set")


@dataclass(frozen=True, slots=True)
class Text:
    origin: Origin
    text: str
    #: not to be shown: it comes from a variable whose name looks like a secret
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Nothing:
    """A key without a value, or with `null`."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Broken:
    """A value that could not be read. Its problem is recorded, and not to be reported again."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Listing:
    origin: Origin
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Entry:
    #: where the key is written, for messages
    origin: Origin
    node: "Node"


@dataclass(frozen=True, slots=True)
class Table:
    origin: Origin
    entries: Mapping[str, Entry] = field(default_factory=dict)


Node = Text | Nothing | Broken | Listing | Table


class Problems:
    """All problems of a configuration, so that they are reported at once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Origin, str], None] = {}

    def add(self, origin: Origin, path: Sequence[str], text: str) -> None:
        parts = [origin.text, ".".join(map(one_line, path)), text]
        self._found[(origin, ": ".join(filter(None, parts)))] = None

    def __bool__(self) -> bool:
        return bool(self._found)

    def lines(self) -> list[str]:
        return [line for _, line in sorted(self._found)]


def with_value(tree: Node, path: Sequence[str], value: Node) -> Node:
    """The tree with `value` at `path`. Missing tables are added; a node of the wrong kind stays, to be reported."""
    if not path:
        return value
    if isinstance(tree, Nothing):
        tree = Table(value.origin)
    if not isinstance(tree, Table):
        return tree
    head, rest = path[0], path[1:]
    entry = tree.entries.get(head) or Entry(value.origin, Nothing(value.origin))
    node = with_value(entry.node, rest, value)
    return Table(tree.origin, {**tree.entries, head: Entry(entry.origin if rest else value.origin, node)})


def origin_of(tree: Node, path: Sequence[str]) -> Origin:
    """Where the key is written or, if it is not, the nearest key around it."""
    origin = tree.origin
    for name in path:
        if not isinstance(tree, Table) or name not in tree.entries:
            break
        origin, tree = tree.entries[name].origin, tree.entries[name].node
    return origin

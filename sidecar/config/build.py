"""Builds settings from a tree, by walking the fields of the settings classes. Collects all errors."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import Field
from functools import cache
from typing import Any, get_args, get_type_hints

from sidecar import brokers
from sidecar.config.formats import Format, Group, ListOf, MapOf, choice_of, format_of
from sidecar.config.messages import HIDDEN, did_you_mean, join_words, looks_secret, quoted
from sidecar.config.tree import Broken, Entry, Listing, Node, Nothing, Problems, Table, Text
from sidecar.model.errors import ConfigError
from sidecar.model.units import FormatError
from sidecar.settings import BrokerSettings

#: without dots, which separate levels in `--set a.b=c`, and double underscores, which do in variables
_NAME = re.compile(r"(?!.*__)[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

Path = tuple[str, ...]


class _Wrong:
    """Stands for a value that could not be built; its problem is recorded."""


WRONG = _Wrong()


@cache
def keys_of(cls: type) -> Mapping[str, tuple[Field[Any], Any]]:
    """The documented fields of a settings class with their types: the keys of the file."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: (f, hints[f.name]) for f in dataclasses.fields(cls) if "doc" in f.metadata}


def show_range(field: Field[Any], fmt: Format | ListOf) -> str:
    """`100ms to 1h`, `at least 1`, or an empty text without bounds."""
    show = str if isinstance(fmt, ListOf) else fmt.show
    least, most = field.metadata.get("at_least"), field.metadata.get("at_most")
    if least is not None and most is not None:
        return f"{show(least)} to {show(most)}"
    if least is not None:
        return f"at least {show(least)}"
    return "" if most is None else f"at most {show(most)}"


class Builder:
    """Builds settings. Records each problem with its origin, its key, and what is allowed."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def group(self, cls: type, node: Node, path: Path, **given: Any) -> Any:
        """An instance of a settings class, or `WRONG`. `given` are the fields that are not keys."""
        values = self.values(cls, node, path)
        return WRONG if values is None or WRONG in values.values() else cls(**given, **values)

    def values(self, cls: type, node: Node, path: Path) -> dict[str, Any] | None:
        """The given keys of a settings class, each with its value or `WRONG`; None if `node` is not a group of keys."""
        known = keys_of(cls)
        entries = self._entries(node, path, f"takes {', '.join(known)}")
        if entries is None:
            return None
        values: dict[str, Any] = {}
        for key, entry in entries.items():
            here = (*path, key)
            if key in known:
                values[key] = self._field(*known[key], entry, here)
            else:
                hint = did_you_mean(key, known) or f"Known here: {', '.join(known)}."
                self._problems.add(entry.origin, here, f"is not a known key. {hint}")
                values[key] = WRONG
        for key, (field, _) in known.items():
            if key not in entries and is_required(field):
                self._problems.add(node.origin, (*path, key), f"is missing. {field.metadata['doc']}")
                values[key] = WRONG
        return values

    def _field(self, field: Field[Any], hint: Any, entry: Entry, path: Path) -> Any:
        fmt, node = format_of(hint), entry.node
        if isinstance(node, Nothing) and isinstance(fmt, Format | ListOf):
            if type(None) in get_args(hint):
                return None
            self._problems.add(entry.origin, path, f"has no value; it takes {_takes(field, fmt)}")
            return WRONG
        if isinstance(fmt, Group):
            return self.group(fmt.cls, node, path)
        if isinstance(fmt, MapOf):
            return self._map(fmt.value, node, path)
        value = self._value(fmt, field, node, path)
        return value if value is WRONG else self._bounded(fmt, field, value, node, path)

    def _value(self, fmt: Format | ListOf, field: Field[Any], node: Node, path: Path) -> Any:
        if isinstance(fmt, ListOf):
            return self._list(fmt, field, node, path)
        if isinstance(node, Broken):
            return WRONG
        if not isinstance(node, Text):
            self._problems.add(node.origin, path, f"{_kind(node)} is not {fmt.takes}")
            return WRONG
        try:
            node.text.encode()
            return fmt.parse(node.text)
        except FormatError as error:
            hint = did_you_mean(node.text, error.choices)
            text = f"{_shown(node, field, path)} {error}" + (f". {hint}" if hint else "")
        except UnicodeEncodeError:
            text = f"{_shown(node, field, path)} is not UTF-8 text"
        self._problems.add(node.origin, path, text)
        return WRONG

    def _list(self, fmt: ListOf, field: Field[Any], node: Node, path: Path) -> Any:
        if isinstance(node, Text):
            parts = [part.strip() for part in node.text.split(",")] if node.text.strip() else []
            node = Listing(node.origin, tuple(Text(node.origin, part, node.secret) for part in parts))
        if isinstance(node, Broken):
            return WRONG
        if not isinstance(node, Listing):
            self._problems.add(node.origin, path, f"{_kind(node)} is not a list such as [a, b]")
            return WRONG
        values = []
        for item in node.items:
            if isinstance(item, Nothing) or (isinstance(item, Text) and not item.text):
                self._problems.add(item.origin, path, "has an empty item")
                values.append(WRONG)
                continue
            value = self._value(fmt.item, field, item, path)
            if value is not WRONG and value in values:
                assert isinstance(item, Text)
                self._problems.add(item.origin, path, f"{_shown(item, field, path)} is given twice")
            values.append(value)
        return WRONG if any(value is WRONG for value in values) else tuple(values)

    def _bounded(self, fmt: Format | ListOf, field: Field[Any], value: Any, node: Node, path: Path) -> Any:
        least, most = field.metadata.get("at_least"), field.metadata.get("at_most")
        measured = len(value) if isinstance(fmt, ListOf) else value
        too_small = least is not None and measured < least
        if not too_small and (most is None or measured <= most):
            return value
        shown = f"{measured} items" if isinstance(fmt, ListOf) else _shown(node, field, path)
        self._problems.add(
            node.origin, path, f"{shown} is too {'small' if too_small else 'large'}; it takes {show_range(field, fmt)}"
        )
        return WRONG

    def _map(self, hint: Any, node: Node, path: Path) -> Any:
        entries = self._entries(node, path, "takes names, each with a group of keys below it")
        if entries is None:
            return WRONG
        fmt = format_of(hint)
        values: dict[str, Any] = {}
        for name, entry in entries.items():
            here = (*path, name)
            if isinstance(fmt, Group) and not _NAME.fullmatch(name):
                self._problems.add(
                    entry.origin,
                    here,
                    "is not a valid name: letters, digits, - and _ (never two), and a letter or digit first",
                )
                values[name] = WRONG
            elif hint is BrokerSettings:
                values[name] = self.broker(name, entry.node, here)
            elif isinstance(fmt, Group):
                values[name] = self.group(fmt.cls, entry.node, here, name=name)
            elif isinstance(fmt, Format):
                values[name] = self._field(_PLAIN, hint, entry, here)
        return values

    def broker(self, name: str, node: Node, path: Path) -> Any:
        """A broker with its type and the options of that type, or `WRONG`."""
        kinds = brokers.kinds()
        entries = self._entries(node, path, "takes type and the options of that type")
        if entries is None:
            return WRONG
        if "type" in entries:
            kind = self._value(choice_of(kinds), _PLAIN, entries["type"].node, (*path, "type"))
            where = entries["type"].origin
        elif name in kinds:
            kind, where = name, node.origin
        else:
            self._problems.add(node.origin, (*path, "type"), f"is missing. It is {join_words(kinds)}.")
            return WRONG
        if kind is WRONG:
            return WRONG
        try:
            cls = brokers.options_class(kind)
        except ImportError as error:
            self._problems.add(where, (*path, "type"), f"{quoted(kind)} needs a library that is not installed: {error}")
            return WRONG
        given = Table(node.origin, {key: entry for key, entry in entries.items() if key != "type"})
        try:
            options = self.group(cls, given, path)
        except ConfigError as error:
            # The options class reports a conflict between options as `key: text`.
            key, _, text = str(error).partition(": ")
            self._problems.add(entries[key].origin if key in entries else node.origin, (*path, key), text)
            return WRONG
        return WRONG if options is WRONG else BrokerSettings(name=name, type=kind, options=options)

    def _entries(self, node: Node, path: Path, takes: str) -> Mapping[str, Entry] | None:
        if isinstance(node, Nothing):
            return {}
        if isinstance(node, Table):
            return node.entries
        if not isinstance(node, Broken):
            self._problems.add(node.origin, path, f"{_kind(node)} is not a group of keys; it {takes}")
        return None


_PLAIN: Field[Any] = dataclasses.field()


def is_required(field: Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _takes(field: Field[Any], fmt: Format | ListOf) -> str:
    takes = "a list such as [a, b]" if isinstance(fmt, ListOf) else fmt.takes
    bounds = show_range(field, fmt)
    return f"{takes}, {bounds}" if bounds else takes


def _kind(node: Node) -> str:
    if isinstance(node, Text):
        return HIDDEN if node.secret else quoted(node.text)
    return {Listing: "a list", Table: "a group of keys"}.get(type(node), "nothing")


def _shown(node: Node, field: Field[Any], path: Path) -> str:
    return HIDDEN if field.metadata.get("secret", looks_secret(path[-1])) else _kind(node)

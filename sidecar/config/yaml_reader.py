"""Reads YAML text into a tree, with a line for every key and with `${VAR}` filled in.

YAML decides the shape only. The setting decides what its text means (see `formats`), so nothing here turns `no` into
false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import yaml

from sidecar.config.messages import looks_secret
from sidecar.config.tree import Broken, Entry, Listing, Node, Nothing, Origin, Problems, Table, Text
from sidecar.model.errors import ConfigError

#: far more than any configuration needs
_MAX_BYTES = 4 << 20
_MAX_DEPTH = 50
_STANDARD_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
)
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
# In this order: an escaped ${, a whole variable, and a ${ that is neither.
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}|\$\{[^}]*\}?")


def read_file(path: str) -> str:
    """The text of a configuration file. Raises `ConfigError`."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason or error}") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: is larger than {_MAX_BYTES >> 20} MiB, which no configuration is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text: byte 0x{raw[error.start]:02x}") from None


def parse(
    text: str,
    locate: Callable[[int], Origin],
    environ: Mapping[str, str] | None,
    problems: Problems,
    path: Sequence[str] = (),
) -> Node:
    """The tree of a YAML text; one without any key is `Nothing`.

    `locate` returns the origin of a line, or of the whole text for 0. Without an environment, `${` is plain text.
    Raises `ConfigError` if the text is not YAML; all other errors go to `problems`.
    """
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax_error(error, locate, text)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{locate(line).text}: holds the character U+{error.character:04X}, which YAML does not allow"
        ) from None
    except RecursionError:
        raise ConfigError(f"{locate(0).text}: is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    if root is None:
        return Nothing(locate(0))
    return _Reader(locate, environ, problems).node(root, path)


class _Reader:
    def __init__(self, locate: Callable[[int], Origin], environ: Mapping[str, str] | None, problems: Problems) -> None:
        self._locate = locate
        self._environ = environ
        self._problems = problems
        #: each node is read once, or a few lines of nested aliases could grow without bound
        self._read: dict[int, Node] = {}
        self._open: set[int] = set()

    def node(self, node: yaml.Node, path: Sequence[str]) -> Node:
        key = id(node)
        if key in self._read:
            return self._read[key]
        origin = self._origin(node)
        if key in self._open:
            return self._broken(origin, path, "is an alias that contains itself")
        if len(self._open) > _MAX_DEPTH:
            return self._broken(origin, path, "is nested too deeply")
        self._open.add(key)
        self._read[key] = read = self._convert(node, origin, path)
        self._open.discard(key)
        return read

    def _convert(self, node: yaml.Node, origin: Origin, path: Sequence[str]) -> Node:
        if node.tag not in _STANDARD_TAGS:
            return self._broken(
                origin, path, "has a tag, which is not supported; a text that begins with ! needs quotes"
            )
        if isinstance(node, yaml.MappingNode):
            return self._table(node, origin, path)
        if isinstance(node, yaml.SequenceNode):
            return Listing(origin, tuple(self.node(item, path) for item in node.value))
        if node.tag == _NULL and getattr(node, "style", None) is None:
            return Nothing(origin)
        return self._text(node.value, origin, path)

    def _table(self, node: yaml.MappingNode, origin: Origin, path: Sequence[str]) -> Table:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            where = self._origin(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.add(where, path, "has a key that is not plain text")
                continue
            key = key_node.value
            if key_node.tag == _MERGE:
                merged = {**self._merge(value_node, path), **merged}
            elif key in entries:
                self._problems.add(where, (*path, key), f"is given twice; first in {entries[key].origin.text}")
            else:
                value = self.node(value_node, (*path, key))
                # YAML places a group at its first key; people look for it at its name.
                entries[key] = Entry(where, replace(value, origin=where) if isinstance(value, Table) else value)
        return Table(origin, {**merged, **entries})

    def _merge(self, node: yaml.Node, path: Sequence[str]) -> dict[str, Entry]:
        """The entries that `<<` adds: from a table or several, of which the first with a key wins."""
        read = self.node(node, (*path, "<<"))
        merged: dict[str, Entry] = {}
        for part in read.items if isinstance(read, Listing) else (read,):
            if isinstance(part, Table):
                merged = {**part.entries, **merged}
            elif not isinstance(part, Broken):
                self._problems.add(self._origin(node), (*path, "<<"), "takes an alias of a group of keys")
        return merged

    def _text(self, text: str, origin: Origin, path: Sequence[str]) -> Node:
        environ = self._environ
        if environ is None or "${" not in text:
            return Text(origin, text)
        secret, wrong = False, False

        def fill(found: re.Match[str]) -> str:
            nonlocal secret, wrong
            whole, name, default = found[0], found[1], found[2]
            if whole == "$${":
                return "${"
            if name is None:
                problem = f'"{whole}" is not a variable such as ${{NAME}} or ${{NAME:default}}; a plain ${{ is $${{'
            elif default is not None and default.startswith("-"):
                problem = f"the default of ${{{name}}} follows the colon without a dash: ${{{name}:{default[1:]}}}"
            elif name not in environ and default is None:
                problem = f"the variable {name} is not set; ${{{name}:default}} sets a default"
            else:
                secret = secret or looks_secret(name)
                return environ.get(name, default or "")
            self._problems.add(origin, path, problem)
            wrong = True
            return ""

        filled = _VARIABLE.sub(fill, text)
        return Broken(origin) if wrong else Text(origin, filled, secret)

    def _origin(self, node: yaml.Node) -> Origin:
        return self._locate(node.start_mark.line + 1)

    def _broken(self, origin: Origin, path: Sequence[str], text: str) -> Broken:
        self._problems.add(origin, path, text)
        return Broken(origin)


def _syntax_error(error: yaml.MarkedYAMLError, locate: Callable[[int], Origin], text: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    # Quoted text may be part of a password that begins with * or !. Tokens such as '<stream end>' may stay.
    problem = re.sub(r"'([^']*)'", _token_only, (error.problem or error.context or "cannot be read").rstrip("."))
    if "but found another document" in problem:
        problem = "holds more than one document"
    elif "undefined alias" in problem:
        problem = "there is no such alias; a text that begins with * needs quotes"
    elif "but found '<block mapping start>'" in problem:
        problem = "keys of one level begin in one column, and this one does not"
    sentence = f"{locate(line).text}: is not YAML: {problem}"
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return sentence + ". Indent with spaces: YAML takes no tabs"
    if "${" in written:
        return sentence + '. Within [ ] and { }, and before a space, quote variables: "${NAME}"'
    return sentence


def _token_only(quoted: re.Match[str]) -> str:
    return quoted[0] if len(quoted[1]) <= 2 or quoted[1].startswith("<") else "something else"

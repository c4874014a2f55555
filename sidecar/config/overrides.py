"""Applies the environment and `--set` to the tree of the file. The environment overrides the file, `--set` both."""

from collections.abc import Iterable, Mapping, Sequence

from sidecar.config.messages import quoted
from sidecar.config.tree import Broken, Node, Nothing, Origin, Problems, Table, Text, with_value
from sidecar.config.yaml_reader import parse
from sidecar.model.errors import ConfigError

_PREFIX = "OFFRAMP_"


def with_environment(tree: Node, environ: Mapping[str, str], problems: Problems) -> Node:
    """The tree with variables such as `OFFRAMP_LISTEN__SOCKET` applied.

    Only names with a double underscore are settings. Kubernetes itself sets OFFRAMP_PORT and OFFRAMP_SERVICE_HOST in
    every pod when a service is named offramp.
    """
    for variable in sorted(environ):
        name = variable.removeprefix(_PREFIX)
        if name == variable or "__" not in name:
            continue
        origin = Origin.variable(variable)
        segments = name.split("__")
        if "" in segments:
            problems.add(origin, (), "is not a key: two underscores separate levels, as in OFFRAMP_LISTEN__SOCKET")
            continue
        path = _existing_path(tree, segments, origin, problems)
        if path is not None:
            tree = with_value(tree, path, _value(environ[variable], origin, path, problems))
    return tree


def with_options(tree: Node, options: Iterable[str], problems: Problems) -> Node:
    """The tree with each `a.b=c` applied, in this order."""
    for option in options:
        key, equals, value = option.partition("=")
        path, origin = key.strip().split("."), Origin.option()
        if not equals or "" in path:
            problems.add(origin, (), f"{quoted(key)} is not key=value, as in --set listen.socket=/run/offramp.sock")
            continue
        tree = with_value(tree, path, _value(value, origin, path, problems))
    return tree


def _existing_path(tree: Node, segments: Sequence[str], origin: Origin, problems: Problems) -> list[str] | None:
    """The keys that the segments of a variable stand for: they show neither case nor the difference of `-` and `_`."""
    path: list[str] = []
    for segment in segments:
        names = list(tree.entries) if isinstance(tree, Table) else []
        fitting = [name for name in names if _as_segment(name) == segment.upper()]
        if len(fitting) > 1:
            problems.add(origin, path, f"may mean {' or '.join(fitting)}; use --set, or ${{VAR}} within the file")
            return None
        name = fitting[0] if fitting else segment.lower()
        path.append(name)
        entry = tree.entries.get(name) if isinstance(tree, Table) else None
        tree = entry.node if entry else Nothing(origin)
    return path


def _as_segment(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")


def _value(text: str, origin: Origin, path: Sequence[str], problems: Problems) -> Node:
    """A value that begins with a bracket is read as YAML; any other is taken literally."""
    if not text.lstrip().startswith(("[", "{")):
        return Text(origin, text)
    try:
        return parse(text, lambda line: origin, None, problems, path)
    except ConfigError as error:
        problems.add(origin, path, str(error).removeprefix(f"{origin.text}: "))
        return Broken(origin)

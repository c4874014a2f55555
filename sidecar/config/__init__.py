"""Reads the configuration: YAML, the environment and `--set` to frozen settings. `--set` overrides the environment, and
the environment the file.

yaml_reader   YAML text to a tree, with `${VAR}` filled in
tree          the configuration as it is written: nodes that know their line, and the problems found
overrides     applies OFFRAMP_* variables and --set to the tree
formats       how each type of value is written: durations, sizes, modes, choices
build         the tree to settings, by walking the fields of the settings classes
checks        rules between settings
push_checks   rules for `push` of a subscription
yaml_writer   settings back to YAML, and the annotated example
messages      how names, values and secrets appear in error messages

All errors are reported at once. Each names the key, the value, what is allowed and the closest valid word.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sidecar.config.build import WRONG, Builder
from sidecar.config.checks import check
from sidecar.config.overrides import with_environment, with_options
from sidecar.config.tree import Node, Nothing, Origin, Problems, Table
from sidecar.config.yaml_reader import parse, read_file
from sidecar.model.errors import ConfigError
from sidecar.settings import Settings

__all__ = ["DEFAULT_PATHS", "InvalidConfigError", "find", "find_and_load", "load", "load_section"]

_Section = TypeVar("_Section")

#: where to look for a configuration file if none is named; the first that exists is used
DEFAULT_PATHS = ("offramp.yaml", "/etc/offramp/offramp.yaml")


class InvalidConfigError(ConfigError):
    """All errors of a configuration, one line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


def find(environ: Mapping[str, str] | None = None) -> str | None:
    """The configuration file to use if none is named: OFFRAMP_CONFIG, or the first of `DEFAULT_PATHS` that exists."""
    named = _or_process(environ).get("OFFRAMP_CONFIG")
    return named or next((path for path in DEFAULT_PATHS if os.path.exists(path)), None)


def load(path: str | None, *, options: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file, the environment and `--set`, in rising order of precedence.

    Without a path there is no file. Raises `ConfigError`.
    """
    problems = Problems()
    environ = _or_process(environ)
    tree = _read(path, options, environ, problems)
    builder = Builder(problems)
    values = builder.values(Settings, tree, ())
    if values is not None:
        _with_local_broker(values, builder, tree)
        check(values, tree, environ, problems)
    if problems:
        raise InvalidConfigError(problems.lines())
    return Settings(**cast(dict[str, Any], values))


def find_and_load(path: str | None, *, options: Iterable[str] = ()) -> tuple[str, Settings]:
    """The name of the source and its settings. Raises `ConfigError`, also if nothing is configured at all."""
    path = path or find()
    settings = load(path, options=options)
    if path is None and not settings.subscriptions:
        raise ConfigError(
            f"no configuration: neither {' nor '.join(DEFAULT_PATHS)} exists; name a file with -c, "
            "or start from the output of `offramp lint --example`"
        )
    return path or "the environment", settings


def load_section(
    section: type[_Section],
    key: str,
    path: str | None,
    *,
    options: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> _Section:
    """Only the settings below one key, whatever errors the others have. For commands that call the sidecar: the others
    may need variables that are not set for them. Raises `ConfigError`."""
    tree = _read(path, options, _or_process(environ), Problems())
    problems = Problems()
    entry = tree.entries.get(key) if isinstance(tree, Table) else None
    settings = Builder(problems).group(section, entry.node, (key,)) if entry else section()
    if problems:
        raise InvalidConfigError(problems.lines())
    return section() if settings is WRONG else cast(_Section, settings)


def _or_process(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _read(path: str | None, options: Iterable[str], environ: Mapping[str, str], problems: Problems) -> Node:
    tree: Node = Table(Origin.file("the configuration", 0))
    if path is not None:
        tree = parse(read_file(path), lambda line: Origin.file(path, line), environ, problems)
        if isinstance(tree, Nothing):
            raise ConfigError(f"{path}: is empty; `offramp lint --example` prints one to start from")
    return with_options(with_environment(tree, environ, problems), options, problems)


def _with_local_broker(values: dict[str, Any], builder: Builder, tree: Node) -> None:
    """Adds `local`, which needs no entry, if a subscription uses it or there is no other broker.

    Not otherwise, because it needs a folder to write to.
    """
    brokers, subscriptions = values.setdefault("brokers", {}), values.get("subscriptions", {})
    if brokers is WRONG or "local" in brokers:
        return
    wanted = subscriptions is not WRONG and any(s is not WRONG and s.broker == "local" for s in subscriptions.values())
    if wanted or not brokers:
        brokers["local"] = builder.broker("local", Nothing(tree.origin), ("brokers", "local"))

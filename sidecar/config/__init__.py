"""YAML, environment and `--set` to frozen settings. The file is weakest, `--set` is strongest.

    forms       how each kind of value is written: durations, sizes, modes, choices
    document    YAML to a tree that knows its lines (`tree`), `${VAR}` filled in
    overrides   OFFRAMP_* and --set change the tree
    build       the tree to settings, by walking the settings classes
    checks      what settings must be to each other
    reference   the annotated example and the tables of docs/configuration.md, made from the same classes

An error names the key, the value, what is allowed and the nearest right word, and all of them come at once.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sidecar.config.build import WRONG, Builder
from sidecar.config.checks import (
    check_access,
    check_fit,
    check_listeners,
    check_machine,
    check_subscription,
    check_together,
    check_tracing,
)
from sidecar.config.document import parse, read_file
from sidecar.config.overrides import with_environment, with_options
from sidecar.config.tree import Node, Nothing, Origin, Problems, Table, origin_of
from sidecar.model.errors import ConfigError
from sidecar.settings import HttpSettings, ListenSettings, Settings, SubscriptionSettings, TracingSettings

__all__ = ["DEFAULT_PATHS", "InvalidConfigError", "find", "http_settings", "listen_settings", "load"]

_Group = TypeVar("_Group")

#: where a configuration is looked for that nobody named, the first that is there
DEFAULT_PATHS = ("offramp.yaml", "/etc/offramp/offramp.yaml")


class InvalidConfigError(ConfigError):
    """Everything that is wrong with a configuration, one line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


def find(environ: Mapping[str, str] | None = None) -> str | None:
    """The configuration file to use when none was named: OFFRAMP_CONFIG, or the first of `DEFAULT_PATHS`."""
    named = _or_own(environ).get("OFFRAMP_CONFIG")
    return named or next((path for path in DEFAULT_PATHS if os.path.exists(path)), None)


def load(path: str | None, *, options: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file, of the environment and of `--set`, in rising order of precedence.

    Without a path there is no file, and the others are all there is. Raises `ConfigError`.
    """
    problems = Problems()
    environ = _or_own(environ)
    tree = _read(path, options, environ, problems)
    builder = Builder(problems)
    values = builder.values(Settings, tree, ())
    if values is not None:
        _with_local_broker(values, builder, tree)
        _check(values, tree, environ, problems)
    if problems:
        raise InvalidConfigError(problems.lines())
    return Settings(**cast(dict[str, Any], values))


def listen_settings(
    path: str | None, *, options: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> ListenSettings:
    """Only where the sidecar of this configuration listens, for those who want to call it.

    They may lack the variables that the rest of the file needs. Raises `ConfigError`.
    """
    return _only(ListenSettings, "listen", _read(path, options, _or_own(environ), Problems()))


def http_settings(
    path: str | None, *, options: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> HttpSettings:
    """Only where its probes are answered, in the same way. Raises `ConfigError`."""
    return _only(HttpSettings, "http", _read(path, options, _or_own(environ), Problems()))


def _only(cls: type[_Group], key: str, tree: Node) -> _Group:
    """One group of settings, whatever is wrong with the others."""
    problems = Problems()
    entry = tree.entries.get(key) if isinstance(tree, Table) else None
    group = Builder(problems).group(cls, entry.node, (key,)) if entry else cls()
    if problems:
        raise InvalidConfigError(problems.lines())
    return cls() if group is WRONG else cast(_Group, group)


def _or_own(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _read(path: str | None, options: Iterable[str], environ: Mapping[str, str], problems: Problems) -> Node:
    tree: Node = Table(Origin.file("the configuration", 0))
    if path is not None:
        tree = parse(read_file(path), lambda line: Origin.file(path, line), environ, problems)
        if isinstance(tree, Nothing):
            raise ConfigError(f"{path}: is empty; `offramp lint --example` prints one to start from")
    return with_options(with_environment(tree, environ, problems), options, problems)


def _with_local_broker(values: dict[str, Any], builder: Builder, tree: Node) -> None:
    """Adds the broker that needs no entry, unless nobody could want it: it needs a folder to write to."""
    brokers, subscriptions = values.setdefault("brokers", {}), values.get("subscriptions", {})
    if brokers is WRONG or "local" in brokers:
        return
    wanted = subscriptions is not WRONG and any(s is not WRONG and s.broker == "local" for s in subscriptions.values())
    if wanted or not brokers:
        brokers["local"] = builder.broker("local", Nothing(tree.origin), ("brokers", "local"))


def _check(values: Mapping[str, Any], tree: Node, environ: Mapping[str, str], problems: Problems) -> None:
    def report(path: Sequence[str], text: str) -> None:
        problems.add(origin_of(tree, path), path, text)

    listen, http = values.get("listen", ListenSettings()), values.get("http", HttpSettings())
    if listen is not WRONG and http is not WRONG:
        check_listeners(listen, http, report)
    if (tracing := values.get("tracing", TracingSettings())) is not WRONG:
        check_tracing(tracing, report)
    brokers, subscriptions = values.get("brokers", {}), values.get("subscriptions", {})
    for name, configured in brokers.items() if brokers is not WRONG else ():
        if configured is not WRONG:
            check_machine(name, configured.options, environ, report)
    clients = values.get("clients", {})
    if listen is not WRONG and clients is not WRONG and subscriptions is not WRONG and WRONG not in clients.values():
        check_access(listen, clients, subscriptions, report)
    if subscriptions is WRONG:
        return
    sound: dict[str, SubscriptionSettings] = {name: s for name, s in subscriptions.items() if s is not WRONG}
    for name, subscription in sound.items():
        # A broker that is wrong is there all the same: its own problem is on record.
        check_subscription(name, subscription, {*brokers, "local"} if brokers is not WRONG else None, report)
        broker = brokers.get(subscription.broker, WRONG) if brokers is not WRONG else WRONG
        if broker is not WRONG:
            check_fit(name, subscription, broker, report)
    check_together(sound, report)

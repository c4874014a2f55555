"""Writes settings as YAML, with or without the description of each key. Secrets stay hidden."""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import Field
from typing import Any

from sidecar import brokers
from sidecar.config.build import is_required, keys_of, show_range
from sidecar.config.formats import Format, Group, ListOf, MapOf, format_of
from sidecar.config.messages import HIDDEN, looks_secret, without_userinfo
from sidecar.settings import BrokerSettings, ClientSettings, Settings, SubscriptionSettings

_WIDTH = 110
_PLAIN_TEXT = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
#: types that need no remark, since the value beside them shows them
_OBVIOUS = ("text", "list of texts", "true or false", "host:port", "octal mode")

_HEAD = """\
# Every setting of Offramp with its default. Keep what you change; you can delete the rest.
# `offramp lint` checks a file and reports each mistake with its line and what is allowed.
#
# ${NAME} and ${NAME:default} stand for environment variables. OFFRAMP_LISTEN__SOCKET=... overrides
# listen.socket of this file, and `--set listen.socket=...` overrides both.

"""


def write(settings: Settings) -> str:
    """A configuration file that loads to the same settings, except for secrets."""
    return "".join(f"{line}\n" for line in group_lines(settings, annotate=False))


def example() -> str:
    """A configuration file with every key and its description. It can be loaded."""
    settings = Settings(
        brokers={"local": _broker("local")},
        subscriptions={"orders": _sample(SubscriptionSettings)},
    )
    lines: list[str] = []
    for line in group_lines(settings, annotate=True):
        if line == "subscriptions:":
            # The other brokers go before the blank line and the comment of this key.
            at = len(lines) - lines[::-1].index("")
            lines[at - 1 : at - 1] = _other_brokers()
        lines.append(line)
        if line == "clients: {}":
            lines.extend(_commented("billing", _sample(ClientSettings)))
    return _HEAD + "".join(f"{line}\n" for line in lines)


def group_lines(settings: Any, *, annotate: bool, indent: str = "") -> Iterator[str]:
    """The keys of a settings class with their values. `annotate` puts a comment above each."""
    cls: type = type(settings)
    for number, (key, (field, hint)) in enumerate(keys_of(cls).items()):
        fmt, value = format_of(hint), getattr(settings, key)
        nested = isinstance(fmt, Group) or (isinstance(fmt, MapOf) and isinstance(format_of(fmt.value), Group))
        if annotate:
            if number and nested:
                yield ""
            yield from comment(field.metadata["doc"] + ("" if nested else _takes_remark(field, hint)), indent)
        if not nested:
            yield f"{indent}{key}: {shown(key, field, hint, value)}"
        elif isinstance(fmt, Group):
            yield f"{indent}{key}:"
            yield from group_lines(value, annotate=annotate, indent=indent + "  ")
        else:
            yield f"{indent}{key}:" + ("" if value else " {}")
            for name, item in value.items():
                yield from named_lines(name, item, annotate=annotate, indent=indent + "  ")


def named_lines(name: str, settings: Any, *, annotate: bool, indent: str) -> Iterator[str]:
    """An entry with a name: a broker, a subscription, a client."""
    yield f"{indent}{name}:"
    if isinstance(settings, BrokerSettings):
        yield f"{indent}  type: {settings.type}"
        settings = settings.options
    yield from group_lines(settings, annotate=annotate, indent=indent + "  ")


def shown(key: str, field: Field[Any], hint: Any, value: Any) -> str:
    """A value as it is written, or `(hidden)` for a secret."""
    return HIDDEN if value and field.metadata.get("secret", looks_secret(key)) else _written(hint, value)


def takes(field: Field[Any], hint: Any) -> str:
    """What a key takes, for tables and comments."""
    fmt = format_of(hint)
    if isinstance(fmt, MapOf):
        return "names with values"
    assert not isinstance(fmt, Group)
    short = _list_of(fmt.item.short) if isinstance(fmt, ListOf) else fmt.short
    # A lower bound of 0 goes without saying.
    trivial = field.metadata.get("at_least") == 0 and "at_most" not in field.metadata
    bounds = "" if trivial else show_range(field, fmt)
    return f"{short}, {bounds}" if bounds else short


def _list_of(short: str) -> str:
    return f"list of {short}" if " or " in short else f"list of {short}s"


def default_text(key: str, field: Field[Any], hint: Any) -> str | None:
    """The default of a key as it is written, or None if the key is required."""
    if field.default is not dataclasses.MISSING:
        return shown(key, field, hint, field.default)
    if field.default_factory is not dataclasses.MISSING:
        return shown(key, field, hint, field.default_factory())
    return None


def comment(text: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(text, _WIDTH - len(indent), break_on_hyphens=False, break_long_words=False):
        yield f"{indent}# {line}"


def _takes_remark(field: Field[Any], hint: Any) -> str:
    """What a key takes, unless its value or its description says so already."""
    remark = takes(field, hint)
    named = all(f"`{word}`" in field.metadata["doc"] for word in re.split(", | or ", remark))
    return "" if named or remark.startswith(_OBVIOUS) else f" ({remark})"


def _written(hint: Any, value: Any) -> str:
    fmt = format_of(hint)
    if value is None:
        return "null"
    if isinstance(fmt, MapOf):
        assert isinstance(value, Mapping)
        return "{" + ", ".join(_pair(name, fmt.value, item) for name, item in value.items()) + "}"
    if isinstance(fmt, ListOf):
        return "[" + ", ".join(_quoted(fmt.item.show(item)) for item in value) + "]"
    assert isinstance(fmt, Format)
    text = fmt.show(value)
    return _quoted(text) if isinstance(value, str) else text


def _pair(name: str, hint: Any, value: Any) -> str:
    return f"{_quoted(name)}: {HIDDEN if looks_secret(name) else _written(hint, value)}"


def _quoted(text: str) -> str:
    text = without_userinfo(text)
    plain = _PLAIN_TEXT.fullmatch(text) and text.lower() not in _YAML_WORDS
    # A ${ within a value must not be read as a variable later.
    return text if plain else '"' + "".join(map(_escaped, text.replace("${", "$${"))) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _broker(kind: str) -> BrokerSettings:
    return BrokerSettings(name=kind, type=kind, options=_sample(brokers.options_class(kind)))


def _other_brokers() -> Iterator[str]:
    """The other types of brokers, commented out: they are alternatives."""
    for kind in brokers.kinds():
        if kind != "local":
            yield "  #"
            yield from _commented(kind, _broker(kind))


def _commented(name: str, settings: Any) -> Iterator[str]:
    for line in named_lines(name, settings, annotate=True, indent=""):
        yield f"  # {line}".rstrip()


def _sample(cls: type) -> Any:
    """An instance with all defaults, and with examples for required keys."""
    required = {key: field.metadata["example"] for key, (field, _) in keys_of(cls).items() if is_required(field)}
    return cls(**required)

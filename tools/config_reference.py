"""The annotated example and the tables of the reference, made from the settings classes.

`python -m tools.config_reference` writes both into the repository; a test fails when they are stale.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import Field
from pathlib import Path
from typing import Any

from sidecar import brokers
from sidecar.config.build import keys_of
from sidecar.config.forms import Group, MapOf, form_of
from sidecar.config.writing import default_text, group_lines, named_lines, takes
from sidecar.settings import BrokerSettings, ClientSettings, Settings, SubscriptionSettings

_BEGIN = "<!-- made by `python -m tools.config_reference`: change sidecar/settings/ instead -->\n"
_END = "<!-- end of what is made -->\n"

_HEAD = """\
# Every setting of Offramp with its default. Keep what you change; the rest may go.
# `offramp lint` checks a file, and says of every mistake where it is and what is allowed.
#
# ${NAME} and ${NAME:default} stand for variables of the environment. OFFRAMP_LISTEN__SOCKET=... overrides
# listen.socket of this file, and `--set listen.socket=...` overrides both.

"""


def example() -> str:
    """A configuration that holds every key, each with what it means. It loads as it is."""
    settings = Settings(
        brokers={"local": _broker("local")},
        subscriptions={"orders": _sample(SubscriptionSettings)},
    )
    lines: list[str] = []
    for line in group_lines(settings, annotate=True):
        if line == "subscriptions:":
            # Back to where the brokers end: before the blank line and the comment of this key.
            at = len(lines) - lines[::-1].index("")
            lines[at - 1 : at - 1] = _other_brokers()
        lines.append(line)
        if line == "clients: {}":
            lines.extend(_commented("billing", _sample(ClientSettings)))
    return _HEAD + "".join(f"{line}\n" for line in lines)


def tables() -> str:
    """The reference: a table for each part of the file."""
    parts = []
    for key, (field, hint) in keys_of(Settings).items():
        form, doc = form_of(hint), field.metadata["doc"]
        if isinstance(form, Group):
            parts.append(_table(f"`{key}`", doc, form.cls))
        elif key == "brokers":
            parts.append(f"### `brokers`\n\n{doc}\n\n`type` may be left out where the name is that of a type.\n")
            for kind in brokers.kinds():
                cls = brokers.options_class(kind)
                parts.append(_table(f"`brokers.NAME` with `type: {kind}`", _first_paragraph(cls), cls))
        elif isinstance(form, MapOf):
            parts.append(_table(f"`{key}.NAME`", doc, form.value))
    return "\n".join(parts)


def with_tables(document: str) -> str:
    """A document with its generated part renewed."""
    before, begin, rest = document.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the document has no part between {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{begin}\n{tables()}\n{end}{after}"


def key_rows(cls: type, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """Every key below a settings class that has a value of its own: name, field, type."""
    for key, (field, hint) in keys_of(cls).items():
        form = form_of(hint)
        if isinstance(form, Group):
            yield from key_rows(form.cls, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", field, hint


def _table(title: str, doc: str, cls: type) -> str:
    rows = [
        f"### {title}\n",
        *([f"{doc}\n"] if doc else []),
        "| key | takes | default | meaning |",
        "|---|---|---|---|",
    ]
    for key, field, hint in key_rows(cls):
        default = default_text(key, field, hint)
        shown = "required" if default is None else f"`{default}`"
        rows.append(f"| `{key}` | {takes(field, hint)} | {shown} | {field.metadata['doc']} |")
    return "\n".join(rows) + "\n"


def _broker(kind: str) -> BrokerSettings:
    return BrokerSettings(name=kind, type=kind, options=_sample(brokers.options_class(kind)))


def _other_brokers() -> Iterator[str]:
    """The other types, commented out: each is one to choose, not one more to run."""
    for kind in brokers.kinds():
        if kind != "local":
            yield "  #"
            yield from _commented(kind, _broker(kind))


def _commented(name: str, settings: Any) -> Iterator[str]:
    for line in named_lines(name, settings, annotate=True, indent=""):
        yield f"  # {line}".rstrip()


def _sample(cls: type) -> Any:
    """An instance with defaults, and with the examples of what has none."""
    required = {
        key: field.metadata["example"]
        for key, (field, _) in keys_of(cls).items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    return cls(**required)


def _first_paragraph(cls: type) -> str:
    doc = cls.__doc__ or ""
    # A dataclass without a docstring gets its signature for one.
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.partition("\n\n")[0].split())


def _write(root: Path) -> None:
    document = root / "docs" / "configuration.md"
    document.write_text(with_tables(document.read_text("utf-8")), "utf-8")
    (root / "examples").mkdir(exist_ok=True)
    (root / "examples" / "offramp.yaml").write_text(example(), "utf-8")


if __name__ == "__main__":
    _write(Path(__file__).parents[1])

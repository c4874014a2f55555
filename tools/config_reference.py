"""Generates `docs/configuration.md` (its tables) and `examples/offramp.yaml` from the settings classes.

`python -m tools.config_reference` writes both; a test fails while they are stale.
"""

from collections.abc import Iterator
from dataclasses import Field
from pathlib import Path
from typing import Any

from sidecar import brokers
from sidecar.config.build import keys_of
from sidecar.config.formats import Group, MapOf, format_of
from sidecar.config.yaml_writer import default_text, example, takes
from sidecar.settings import Settings

_BEGIN = "<!-- made by `python -m tools.config_reference`: change sidecar/settings/ instead -->\n"
_END = "<!-- end of what is made -->\n"


def tables() -> str:
    """The reference: a table for each part of the file."""
    parts = []
    for key, (field, hint) in keys_of(Settings).items():
        fmt, doc = format_of(hint), field.metadata["doc"]
        if isinstance(fmt, Group):
            parts.append(_table(f"`{key}`", doc, fmt.cls))
        elif key == "brokers":
            parts.append(f"### `brokers`\n\n{doc}\n\n`type` may be left out where the name is that of a type.\n")
            for kind in brokers.kinds():
                cls = brokers.options_class(kind)
                parts.append(_table(f"`brokers.NAME` with `type: {kind}`", _first_paragraph(cls), cls))
        elif isinstance(fmt, MapOf):
            parts.append(_table(f"`{key}.NAME`", doc, fmt.value))
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
        fmt = format_of(hint)
        if isinstance(fmt, Group):
            yield from key_rows(fmt.cls, f"{prefix}{key}.")
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

"""HTML that cannot be broken out of: whatever is not markup made here is text, and is escaped."""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "link"})
#: of SVG: these must be closed, or what follows is within them and not drawn
_SHAPES = frozenset({"rect", "path", "polyline", "line"})


class Html(str):
    """Markup. Made by `tag`, `joined` and `raw` only; any other string is text."""

    __slots__ = ()


Child = Html | str | int | None


def raw(markup: str) -> Html:
    """For constants of this package, never for anything that comes from outside."""
    return Html(markup)


def text(value: object) -> Html:
    """Text from anywhere. What does not print (control characters, overrides of the direction) is shown as such."""
    shown = str(value)
    if not shown.isprintable():
        shown = "".join(
            char if char.isprintable() else " " if char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in shown
        )
    return Html(escape(shown, quote=True))


def joined(children: Iterable[Child]) -> Html:
    return Html("".join(child if isinstance(child, Html) else text(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """`tag("td", "5", class_="number")`. Attributes that are None or False are left out; True is one without a value;
    `data_label` is `data-label`, and a trailing underscore keeps out of Python's way."""
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}/>") if name in _SHAPES else Html(f"<{name}{said}>{joined(children)}</{name}>")


def table(caption: str, headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Child]]) -> Html:
    """Headings are (words, whether the column has numbers). The first cell of a row is its heading.

    Each cell carries its column's words, so that narrow screens can stack the cells.
    """
    heads = list(headings)
    numeric = ["number" if number else None for _, number in heads]
    body = []
    for row in rows:
        cells = []
        for at, cell in enumerate(row):
            label = heads[at][0]
            if at == 0:
                cells.append(tag("th", cell, scope="row", data_label=label))
            else:
                cells.append(tag("td", tag("span", cell), class_=numeric[at], data_label=label))
        body.append(tag("tr", *cells))
    head = tag(
        "tr", *(tag("th", words, scope="col", class_=kind) for (words, _), kind in zip(heads, numeric, strict=True))
    )
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))

"""HTML that escapes whatever it is given: only what these functions return is markup, any other string is text."""

from collections.abc import Iterable
from html import escape

from sidecar.model.text import clean

_VOID = frozenset({"meta", "link"})
#: elements of SVG that must be closed, or what follows lies within them and is not drawn
_SHAPES = frozenset({"rect", "path", "polyline", "line"})


class Html(str):
    """Markup. Made by `tag`, `joined` and `raw` only; any other string is text."""

    __slots__ = ()


Child = Html | str | int | None


def raw(markup: str) -> Html:
    """Only for constants of this package, never for anything from outside."""
    return Html(markup)


def text(value: object) -> Html:
    """Text from anywhere."""
    return Html(escape(clean(str(value)), quote=True))


def joined(children: Iterable[Child]) -> Html:
    return Html("".join(child if isinstance(child, Html) else text(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element, as in `tag("td", "5", class_="number")`.

    Attributes that are None or False are left out; True makes one without a value. `data_label` becomes `data-label`,
    and the trailing underscore of `class_` is dropped.
    """
    listed = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{listed}>")
    return Html(f"<{name}{listed}/>") if name in _SHAPES else Html(f"<{name}{listed}>{joined(children)}</{name}>")


def with_code(sentence: str) -> Html:
    """The sentence with what stands between backticks as code."""
    parts = sentence.split("`")
    return joined(tag("code", part) if at % 2 else text(part) for at, part in enumerate(parts))


def table(caption: str, headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Child]]) -> Html:
    """Each heading is (text, whether the column has numbers). The first cell of a row is the heading of the row.

    Each cell carries the heading of its column, so that narrow screens can stack the cells.
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
        "tr", *(tag("th", name, scope="col", class_=kind) for (name, _), kind in zip(heads, numeric, strict=True))
    )
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))

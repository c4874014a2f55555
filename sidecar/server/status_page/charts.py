"""Small charts, drawn as SVG by the sidecar: they need no script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.server.status_page.history import KEPT
from sidecar.server.status_page.markup import Html, tag

_WIDTH, _HEIGHT = 300, 60
#: room above the highest value
_TOP = 4


@dataclass(frozen=True, slots=True)
class Line:
    """Values, oldest first; the newest is drawn at the right edge."""

    values: Sequence[float]
    #: how it is painted: see style.css
    kind: str


def chart(
    title: str, lines: Sequence[Line], shown: Callable[[float], str], unit: str, also: Html | None = None
) -> Html:
    """The first line is the one that matters: it is filled, and its newest value stands above."""
    first = lines[0].values
    newest = shown(first[-1]) if first else "–"
    highest = max((value for line in lines for value in line.values), default=0.0)
    most = shown(max(first, default=0.0))
    drawn = [_area(lines[0], highest), *(_line(line, highest) for line in reversed(lines))] if highest > 0 else []
    picture = tag(
        "svg",
        tag("line", x1=0, y1=_HEIGHT - 0.5, x2=_WIDTH, y2=_HEIGHT - 0.5, class_="base"),
        *drawn,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {newest} {unit} now, {most} {unit} at the most",
    )
    return tag(
        "figure",
        tag("figcaption", tag("span", title), tag("b", newest, tag("small", f" {unit}"))),
        picture,
        tag("p", tag("span", f"most {most}"), also, class_="scale"),
        class_=f"chart {lines[0].kind}",
    )


def bar(part: float, whole: float, label: str) -> Html:
    """How much of something is used."""
    share = min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0
    return tag(
        "svg",
        tag("rect", width=100, height=6, rx=3, class_="track"),
        tag("rect", width=_number(share * 100), height=6, rx=3, class_="fill") if share else None,
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="bar tight" if share > 0.9 else "bar",
    )


def _points(line: Line, highest: float) -> list[tuple[float, float]]:
    values = line.values[-KEPT:]
    step = _WIDTH / (KEPT - 1)
    left = _WIDTH - step * (len(values) - 1)
    room = _HEIGHT - _TOP
    return [(left + step * at, _HEIGHT - room * value / highest) for at, value in enumerate(values)]


def _area(line: Line, highest: float) -> Html | None:
    points = _points(line, highest)
    if len(points) < 2:
        return None
    path = " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    closed = f"M{_number(points[0][0])} {_HEIGHT} L{path} L{_WIDTH} {_HEIGHT} Z"
    return tag("path", d=closed, class_="area")


def _line(line: Line, highest: float) -> Html | None:
    points = _points(line, highest)
    if len(points) < 2:
        return None
    path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
    return tag("polyline", points=path, class_=f"line {line.kind}")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

"""The last minutes of a subscription: a ring of samples, and small charts of them in SVG, which need no script."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sidecar.observability.counters import SETTLE_SECONDS_BOUNDS, Counters, Meters
from sidecar.server.status_page.markup import Html, tag

#: seconds between two samples, and how many are kept: five minutes
SAMPLE_INTERVAL = 2.0
MAX_SAMPLES = 150
#: size of a chart, in units of its own
_WIDTH, _HEIGHT = 300, 60
#: space above the highest value
_TOP = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts since the start, and the records in flight, at one moment."""

    at: float
    fetched: int
    delivered: int
    acked: int
    failed: int
    in_flight: int
    #: settled batches by the time they took, as in `Histogram.counts`
    settled: tuple[int, ...]


def take_sample(now: float, counters: Counters, meters: Meters, in_flight: int) -> Sample:
    failed = counters.nacked + counters.rejected + counters.expired + counters.abandoned
    settled = tuple(meters.settle_seconds.counts)
    return Sample(now, counters.fetched, counters.delivered, counters.acked, failed, in_flight, settled)


class History:
    """The latest samples of one subscription, oldest first. Its size is fixed."""

    def __init__(self) -> None:
        # One more than is shown, since a rate lies between two samples.
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES + 1)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def rates(self, of: str) -> list[float]:
        """Records per second between samples. `of` is `fetched`, `delivered`, `acked` or `failed`."""
        return [
            (getattr(after, of) - getattr(before, of)) / max(after.at - before.at, 1e-3)
            for before, after in pairwise(self._samples)
        ]

    def in_flight(self) -> list[float]:
        return [float(sample.in_flight) for sample in self._samples][1:]

    def settle_times(self, share: float) -> list[float]:
        """This quantile of the seconds to settle, for the batches settled between two samples; 0 where none was."""
        return [
            quantile(SETTLE_SECONDS_BOUNDS, _difference(after.settled, before.settled), share)
            for before, after in pairwise(self._samples)
        ]


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Interpolates linearly within a bucket. Returns the last bound for what lies beyond it, and 0 without counts."""
    wanted = share * sum(counts)
    if not wanted:
        return 0.0
    below, so_far = 0.0, 0
    for bound, count in zip(bounds, counts, strict=False):
        if count and so_far + count >= wanted:
            return below + (bound - below) * (wanted - so_far) / count
        below, so_far = bound, so_far + count
    return below


def _difference(after: Sequence[int], before: Sequence[int]) -> list[int]:
    return [now - then for now, then in zip(after, before, strict=True)]


@dataclass(frozen=True, slots=True)
class Line:
    """Values, oldest first; the newest is drawn at the right edge."""

    values: Sequence[float]
    #: its looks: see style.css
    kind: str


def chart(
    title: str, lines: Sequence[Line], shown: Callable[[float], str], unit: str, also: Html | None = None
) -> Html:
    """The first line is the main one: it is filled, and its newest value stands above the chart."""
    first = lines[0].values
    newest = shown(first[-1]) if first else "–"
    highest = max((value for line in lines for value in line.values), default=0.0)
    most = shown(max(first, default=0.0))
    drawn: list[Html] = []
    if highest > 0 and len(first) > 1:
        drawn = [_area(_points(lines[0], highest)), *(_line(line, highest) for line in reversed(lines))]
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
    """A bar that shows how much of something is used."""
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
    values = line.values[-MAX_SAMPLES:]
    step = _WIDTH / (MAX_SAMPLES - 1)
    left = _WIDTH - step * (len(values) - 1)
    height = _HEIGHT - _TOP
    return [(left + step * at, _HEIGHT - height * value / highest) for at, value in enumerate(values)]


def _area(points: Sequence[tuple[float, float]]) -> Html:
    path = " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    closed = f"M{_number(points[0][0])} {_HEIGHT} L{path} L{_WIDTH} {_HEIGHT} Z"
    return tag("path", d=closed, class_="area")


def _line(line: Line, highest: float) -> Html:
    path = " ".join(f"{_number(x)},{_number(y)}" for x, y in _points(line, highest))
    return tag("polyline", points=path, class_=f"line {line.kind}")


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

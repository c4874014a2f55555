"""Numbers and times on the status page."""

import pytest

from sidecar.server.status_page.format import count, duration, rate


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ms"), (0.0042, "4 ms"), (1.26, "1.3 s"), (42.9, "42 s"), (60, "1 min"), (192, "3 min 12 s"),
     (7500, "2 h 5 min"), (86400 * 4 + 3 * 3600 + 59, "4 d 3 h")],
)  # fmt: skip
def test_durations_read_well(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_numbers_read_well() -> None:
    assert [count(n) for n in (-1, 0, 999, 12_345, 2_500_000)] == ["?", "0", "999", "12,345", "2.5M"]
    assert [rate(n) for n in (0.0, 0.5, 5.0, 12.3, 12_345.0)] == ["0", "0.5", "5", "12", "12.3k"]

"""Percentiles."""

from collections.abc import Sequence


def share(values: Sequence[float], of: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * of))]

"""The adaptive limit finds the concurrency with the best throughput."""

import heapq
import random
from collections.abc import Callable

import pytest

from sidecar.core.scheduling.adaptive_limit import AdaptiveLimit

#: seconds for a batch, by the number in flight
Service = Callable[[int], float]
#: the share of a batch that fails, by the number in flight
Failing = Callable[[int], float]
_UNLIMITED = float(1 << 40)


def fragile(here: int) -> float:
    """Serves 16 at once well; beyond that the time grows with the cube of the excess."""
    return 0.005 * max(1.0, here / 16) ** 3


def queue(here: int) -> float:
    """Serves 16 at once; others queue."""
    return 0.005 * max(1.0, here / 16)


def ample(_here: int) -> float:
    return 0.005


def varying(service: Service, seed: int) -> Service:
    """Exponentially distributed: the standard deviation is the mean."""
    chance = random.Random(seed)
    return lambda here: service(here) * chance.expovariate(1.0)


def bad(share: float, part: float, seed: int) -> Failing:
    """Of this share of the batches so much fails, whoever else is there: bad records."""
    chance = random.Random(seed)
    return lambda _here: part if chance.random() < share else 0.0


def refuses(most: int, seed: int) -> Failing:
    """Serves so many at once and refuses all others: a service with a limit of its own."""
    chance = random.Random(seed)
    return lambda here: float(chance.random() > most / here)


def play(
    limit: AdaptiveLimit,
    service: Service,
    *,
    workers: int,
    seconds: float,
    began: float = 0.0,
    failing: Failing = lambda _here: 0.0,
) -> list[int]:
    """Workers that always have work. Returns the level after each batch of the second half."""
    now = began
    flying: list[tuple[float, float, float]] = []
    levels: list[tuple[float, int]] = []
    while now < began + seconds:
        while len(flying) < min(workers, limit.level):
            here = len(flying) + 1
            heapq.heappush(flying, (now + service(here), now, failing(here)))
        now, went, failed = heapq.heappop(flying)
        limit.settled(1.0 - failed, failed, now - went, len(flying) + 1, now)
        levels.append((now, limit.level))
    return sorted(level for at, level in levels if at > began + seconds / 2)


def median(levels: list[int]) -> int:
    return levels[len(levels) // 2]


def test_what_slows_down_when_it_is_pushed_is_not_pushed() -> None:
    levels = play(AdaptiveLimit(4.0, _UNLIMITED), fragile, workers=64, seconds=10.0)
    assert 12 <= median(levels) <= 17
    assert levels[-1] < 24, "far too many, even for a try"


@pytest.mark.parametrize("seed", range(5))
def test_the_same_is_found_where_times_vary_much(seed: int) -> None:
    assert 11 <= median(play(AdaptiveLimit(4.0, _UNLIMITED), varying(fragile, seed), workers=64, seconds=20.0)) <= 20


def test_what_only_queues_is_kept_busy_and_no_more() -> None:
    assert 16 <= median(play(AdaptiveLimit(4.0, _UNLIMITED), queue, workers=64, seconds=10.0)) <= 25


@pytest.mark.parametrize("seed", range(5))
def test_all_workers_are_used_where_there_is_room_for_all(seed: int) -> None:
    for service in (ample, varying(ample, seed)):
        assert median(play(AdaptiveLimit(4.0, _UNLIMITED), service, workers=128, seconds=10.0)) >= 128


def test_it_stays_at_its_ceiling_nearly_always() -> None:
    levels = play(AdaptiveLimit(4.0, 32.0), ample, workers=64, seconds=10.0)
    assert levels[-1] == 32
    assert sum(level == 32 for level in levels) > 0.85 * len(levels)


def test_it_does_not_climb_where_there_is_little_to_do() -> None:
    limit = AdaptiveLimit(8.0, _UNLIMITED)
    play(limit, ample, workers=3, seconds=10.0)
    assert limit.level <= 8


def test_for_want_of_work_it_falls_to_a_few_and_climbs_when_there_is_work_again() -> None:
    limit = AdaptiveLimit(64.0, _UNLIMITED)
    assert play(limit, ample, workers=1, seconds=60.0)[0] >= 3
    assert limit.level < 16
    assert median(play(limit, ample, workers=64, seconds=5.0, began=60.0)) >= 64


def test_it_follows_what_is_behind_the_handlers_when_that_changes() -> None:
    limit = AdaptiveLimit(4.0, _UNLIMITED)
    assert median(play(limit, ample, workers=64, seconds=5.0)) >= 64
    assert 12 <= median(play(limit, fragile, workers=64, seconds=20.0, began=5.0)) <= 17
    assert median(play(limit, ample, workers=64, seconds=20.0, began=25.0)) >= 64


def test_that_batches_take_longer_from_now_on_does_not_keep_it_down() -> None:
    limit = AdaptiveLimit(4.0, _UNLIMITED)
    assert median(play(limit, ample, workers=64, seconds=5.0)) >= 64
    assert median(play(limit, lambda here: 10 * ample(here), workers=64, seconds=30.0, began=5.0)) >= 48


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("share", "part"), [(0.05, 0.01), (0.01, 1.0), (0.3, 1.0)])
def test_bad_records_do_not_keep_it_down(share: float, part: float, seed: int) -> None:
    limit = AdaptiveLimit(4.0, _UNLIMITED)
    levels = play(limit, varying(ample, seed), workers=64, seconds=10.0, failing=bad(share, part, seed))
    assert median(levels) >= 64


@pytest.mark.parametrize("seed", range(3))
def test_a_service_that_refuses_what_is_too_much_is_not_pushed_far_beyond(seed: int) -> None:
    limit = AdaptiveLimit(4.0, _UNLIMITED)
    assert 12 <= median(play(limit, ample, workers=64, seconds=20.0, failing=refuses(16, seed))) <= 26


def test_a_service_that_fails_for_most_is_cut_by_the_share_that_failed() -> None:
    limit = AdaptiveLimit(4.0, _UNLIMITED)
    assert median(play(limit, ample, workers=64, seconds=5.0)) >= 64
    levels = play(limit, ample, workers=64, seconds=5.0, began=5.0, failing=lambda here: float(here > 8))
    assert median(levels) <= 10

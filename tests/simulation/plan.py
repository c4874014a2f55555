"""Random settings for one history, chosen so that limits are often reached."""

import random
from dataclasses import dataclass, replace

from sidecar.model.records import Order, Start
from sidecar.settings import (
    BatchSettings,
    BudgetSettings,
    Bytes,
    Exhausted,
    LeaseSettings,
    MemorySettings,
    OutageSettings,
    Oversized,
    ParkingSettings,
    RetrySettings,
    Seconds,
    SubscriptionSettings,
    WindowSettings,
)


@dataclass(frozen=True)
class Plan:
    #: of the first life
    settings: SubscriptionSettings
    #: those of later lives, if they change
    later: tuple[SubscriptionSettings, ...]
    #: lanes of each topic
    lanes: dict[str, int]
    workers: int
    #: share of the workers that use `Fetch`
    fetchers: float
    #: share of the others that use the `Consume` stream as it is shipped
    streams: float
    keeps_acks_beyond: bool
    keeps_reach: bool
    #: share of records with a gap before them
    gaps: float
    poison: float
    killers: float
    #: largest size of a value in bytes
    largest: int
    #: a few values have this size in bytes (0: none)
    huge: int
    #: largest size of a value that the retry topic takes
    largest_parked: int
    keys: int


def _draw_window(rng: random.Random) -> WindowSettings:
    pick = rng.choice
    return WindowSettings(
        records=pick((1, 3, 8, 20, 1000)), bytes=Bytes(pick((1024, 4096, 1 << 20))), span=pick((5, 20, 100, 1000))
    )


def _draw_settings(rng: random.Random, topics: tuple[str, ...], order: Order) -> SubscriptionSettings:
    pick = rng.choice
    first = pick((0.05, 0.2, 1.0))
    return SubscriptionSettings(
        name="sim",
        topics=topics,
        order=order,
        start=pick((Start.EARLIEST, Start.EARLIEST, Start.EARLIEST, Start.LATEST)),
        oversized=pick((Oversized.DEAD_LETTER, Oversized.HOLD)),
        commit_every=Seconds(pick((0.0, 0.05, 0.1, 0.5))),
        commit_timeout=Seconds(pick((1.0, 3.0))),
        batch=BatchSettings(
            records=pick((1, 2, 3, 5, 8, 16)),
            bytes=Bytes(pick((1024, 1024, 4096, 1 << 20))),
            linger=Seconds(pick((0.0, 0.0, 0.02, 0.3))),
        ),
        window=_draw_window(rng),
        memory=MemorySettings(
            records=pick((16, 40, 100, 1000)),
            bytes=Bytes(pick((4096, 16384, 1 << 20))),
            poll_records=pick((1, 4, 16, 100)),
            poll_bytes=Bytes(pick((1024, 4096, 1 << 20))),
        ),
        lease=LeaseSettings(default=Seconds(pick((1.0, 5.0))), max=Seconds(pick((3.0, 10.0, 60.0)))),
        retry=RetrySettings(
            attempts=pick((1, 2, 3, 5)),
            first=Seconds(first),
            factor=pick((1.0, 2.0)),
            max=Seconds(pick((first, 2.0, 8.0))),
            jitter=pick((0.0, 0.2, 1.0)),
            exhausted=pick((Exhausted.DEAD_LETTER, Exhausted.DEAD_LETTER, Exhausted.HOLD, Exhausted.DROP)),
        ),
        outage=OutageSettings(
            enabled=rng.random() < 0.8,
            failures=pick((2, 2, 3)),
            lately=Seconds(pick((2.0, 10.0, 60.0))),
            probe_first=Seconds(pick((0.05, 0.5))),
            probe_max=Seconds(pick((1.0, 5.0))),
            reject_share=pick((1.0, 1.0, 0.3)),
            reject_sample=pick((5, 20)),
        ),
        parking=ParkingSettings(
            enabled=rng.random() < 0.8, after=Seconds(pick((0.0, 0.3, 1.0, 5.0))), lanes=pick((1, 2, 3))
        ),
        budget=BudgetSettings(
            concurrency=pick((0, 0, 0, 1, 3)), adaptive=rng.random() < 0.2, rate=pick((0.0, 0.0, 0.0, 50.0))
        ),
    )


def draw(rng: random.Random, order: Order | None) -> Plan:
    pick = rng.choice
    topics = ("orders",) if rng.random() < 0.7 else ("orders", "bills")
    order = order or pick((Order.NONE, Order.NONE, Order.KEY, Order.LANE))
    keeps_reach = rng.random() < 0.7
    settings = _draw_settings(rng, topics, order)
    later = [_draw_settings(rng, topics, order) for _ in range(pick((0, 0, 3)))]
    if not keeps_reach:
        # What another window delivered cannot be known.
        later = [replace(each, window=settings.window) for each in later]
    return Plan(
        settings=settings,
        later=tuple(later),
        lanes={topic: pick((1, 1, 2, 3, 5)) for topic in topics},
        workers=pick((1, 2, 3, 5)),
        fetchers=pick((0.0, 0.0, 0.3, 1.0)),
        streams=pick((0.0, 0.5, 1.0)),
        keeps_acks_beyond=rng.random() < 0.5,
        keeps_reach=keeps_reach,
        gaps=pick((0.0, 0.0, 0.1, 0.4)),
        poison=pick((0.0, 0.0, 0.02, 0.1)),
        killers=pick((0.0, 0.0, 0.02, 0.1)),
        largest=pick((20, 200, 600)),
        huge=pick((0, 0, 0, 3500)),
        largest_parked=pick((1 << 30, 1 << 30, 1 << 30, 150, 10)),
        keys=pick((1, 3, 10)),
    )

"""How a subscription consumes: batches, leases, retries, and what it may hold."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.model.records import Order, Start
from sidecar.settings.kit import Bytes, Seconds, section, setting


class Exhausted(StrEnum):
    """What becomes of a record whose attempts are used up."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"
    DROP = "drop"


class Oversized(StrEnum):
    """What becomes of a record that no connected client can take."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"


class SubscriptionMode(StrEnum):
    """How a subscription is read."""

    LEASES = "leases"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    records: int = setting("Most records of a batch.", 500, at_least=1, at_most=100_000)
    bytes: Bytes = setting(
        "Most bytes of a batch. A single larger record travels alone.", Bytes(1 << 20), at_least=1024
    )
    linger: Seconds = setting(
        "How long an incomplete batch waits for more, counted from its first record. 0 sends what is there.",
        Seconds(0.0),
        at_least=0.0,
        at_most=60.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """How far past its committed position a lane may be delivered. This is what a crash may replay."""

    records: int = setting("Most records of a lane past its committed position.", 20_000, at_least=1)
    bytes: Bytes = setting("Most bytes of a lane past its committed position.", Bytes(64 << 20), at_least=1024)
    span: int = setting("Most positions of a lane past its committed one, gaps included.", 100_000, at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What all records of the subscription together may hold. Half is shared out evenly among the lanes as
    their own, half goes to whoever needs it."""

    bytes: Bytes = setting("Most bytes of records in memory.", Bytes(64 << 20), at_least=64 << 10)
    records: int = setting("Most records in memory.", 200_000, at_least=16)
    poll_records: int = setting("Most records fetched at a time.", 2_000, at_least=1, at_most=100_000)
    poll_bytes: Bytes = setting("Most bytes fetched at a time.", Bytes(1 << 20), at_least=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    default: Seconds = setting(
        "How long a lease lasts that was fetched without a session and without asking for a time.",
        Seconds(30.0),
        at_least=0.1,
    )
    max: Seconds = setting("No lease lasts longer, whatever the client asks for.", Seconds(3600.0), at_least=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    attempts: int = setting(
        "Failed deliveries of a record alone, outages aside, before it counts as failed for good.",
        5,
        at_least=1,
        at_most=1_000_000,
    )
    first: Seconds = setting("Wait before the second attempt.", Seconds(1.0), at_least=0.0)
    factor: float = setting("Each further wait is longer by this factor.", 2.0, at_least=1.0, at_most=100.0)
    max: Seconds = setting("No wait is longer, unless the handler asks for it.", Seconds(300.0), at_least=0.0)
    jitter: float = setting(
        "Share of each wait that is random, so that retries spread out.", 0.2, at_least=0.0, at_most=1.0
    )
    exhausted: Exhausted = setting(
        "What becomes of a record whose attempts are used up: `dead-letter` it and go on, `hold` it (its key or "
        "lane waits, retried at the longest wait), or `drop` it.",
        Exhausted.DEAD_LETTER,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSettings:
    """An outage is not poison: when everything fails, nothing is split and nothing is dead-lettered."""

    enabled: bool = setting("Tell an outage from poison. Off: every failure counts as poison.", True)
    failures: int = setting(
        "Different batches that must fail in a row, with no success in between, to be an outage.", 3, at_least=2
    )
    lately: Seconds = setting(
        "A success within this time shows that the handler works, so that a failing batch is split.",
        Seconds(60.0),
        at_least=0.1,
    )
    probe_first: Seconds = setting("Wait before the first probe.", Seconds(0.5), at_least=0.001)
    probe_max: Seconds = setting(
        "Longest wait between probes, and for the answer to one.", Seconds(15.0), at_least=0.001
    )
    reject_share: float = setting(
        "Pause the subscription when more than this share of its last settled records was rejected. 1 never does.",
        0.5,
        at_least=0.0,
        at_most=1.0,
    )
    reject_sample: int = setting("How many settled records that share is taken of.", 1_000, at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingSettings:
    """Records that wait long are put aside in the group's retry topic (order `none` only)."""

    enabled: bool = setting("Park records that must wait long.", True)
    after: Seconds = setting("Park a record that must wait longer than this.", Seconds(30.0), at_least=0.0)
    topic: str = setting("The retry topic. `{group}` is replaced.", "{group}.offramp.retry")
    lanes: int = setting(
        "Lanes of the retry topic when Offramp makes it. Each holds waits of one order of magnitude, so that short "
        "waits do not queue behind long ones.",
        8,
        at_least=1,
        at_most=64,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    topic: str = setting("The dead-letter topic. `{group}` is replaced.", "{group}.offramp.dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """Protects what is behind the handler."""

    concurrency: int = setting("Most batches in flight. 0: no limit.", 0, at_least=0)
    adaptive: bool = setting(
        "Find the number of batches in flight at which most gets done: it climbs while more at once gets more done, "
        "and falls when batches take longer instead, on OVERLOADED and on failures; started low after a stall.",
        False,
    )
    rate: float = setting("Most records a second. 0: no limit.", 0.0, at_least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    name: str = ""
    broker: str = setting("A name from `brokers`.", "local")
    topics: tuple[str, ...] = setting("Topics to consume.", at_least=1, example=("orders",))
    group: str = setting("The group on the broker. Default: the subscription's name.", "")
    mode: SubscriptionMode = setting(
        "`leases`: workers get batches and settle them; `ranges`: a reader that keeps its own place, such as Spark, "
        "reads by position. Never both under one group.",
        SubscriptionMode.LEASES,
    )
    order: Order = setting(
        "`none`: any batch to any worker; `key`: records of a key in order, keys in parallel; `lane`: one batch "
        "of a lane at a time.",
        Order.NONE,
    )
    start: Start = setting("Where a new group starts: `earliest` or `latest`.", Start.EARLIEST)
    oversized: Oversized = setting(
        "What becomes of a record that no connected client can take: `dead-letter` it, or `hold` its lane.",
        Oversized.DEAD_LETTER,
    )
    commit_every: Seconds = setting(
        "Time between commits while there is something to commit.", Seconds(0.1), at_least=0.0, at_most=60.0
    )
    commit_timeout: Seconds = setting("A commit that takes longer has failed.", Seconds(10.0), at_least=0.1)
    batch: BatchSettings = section("How records are grouped.", BatchSettings)
    window: WindowSettings = section("How far deliveries may run ahead of the commit.", WindowSettings)
    memory: MemorySettings = section("What is held in memory.", MemorySettings)
    lease: LeaseSettings = section("How long workers may keep a batch.", LeaseSettings)
    retry: RetrySettings = section("What happens to records that fail.", RetrySettings)
    outage: OutageSettings = section("When the handler fails for everything.", OutageSettings)
    parking: ParkingSettings = section("Putting records aside that wait long.", ParkingSettings)
    dead_letter: DeadLetterSettings = section("Where records go that failed for good.", DeadLetterSettings)
    budget: BudgetSettings = section("Limits that protect what is behind the handler.", BudgetSettings)

    @property
    def group_name(self) -> str:
        return self.group or self.name

    @property
    def retry_topic(self) -> str:
        return self.parking.topic.replace("{group}", self.group_name)

    @property
    def dead_letter_topic(self) -> str:
        return self.dead_letter.topic.replace("{group}", self.group_name)

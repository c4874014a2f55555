"""How a subscription consumes: batches, limits, leases, retries, side topics."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.model.records import Order, Start
from sidecar.settings.fields import Bytes, Seconds, section, setting
from sidecar.settings.push import PushSettings


class Exhausted(StrEnum):
    """What happens to a record that has used up its attempts."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"
    DROP = "drop"


class Oversized(StrEnum):
    """What happens to a record that is too large for every connected client."""

    DEAD_LETTER = "dead-letter"
    HOLD = "hold"


class SubscriptionMode(StrEnum):
    """How a subscription is read."""

    LEASES = "leases"
    RANGES = "ranges"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    records: int = setting("Maximum number of records in a batch.", 500, at_least=1, at_most=100_000)
    bytes: Bytes = setting(
        "Maximum size of a batch. A larger record is delivered alone.", Bytes(1 << 20), at_least=1024
    )
    linger: Seconds = setting(
        "How long an incomplete batch waits for more records, counted from its first one. 0: it does not wait.",
        Seconds(0.0),
        at_least=0.0,
        at_most=60.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    records: int = setting("Maximum number of records of a lane past its committed position.", 20_000, at_least=1)
    bytes: Bytes = setting(
        "Maximum size of the records of a lane past its committed position.", Bytes(64 << 20), at_least=1024
    )
    span: int = setting(
        "Maximum number of positions of a lane past its committed one, gaps included.", 100_000, at_least=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What all records of the subscription may take up. Half is divided evenly among the lanes, half is common."""

    bytes: Bytes = setting("Maximum size of all records in memory.", Bytes(64 << 20), at_least=64 << 10)
    records: int = setting("Maximum number of records in memory.", 200_000, at_least=16)
    poll_records: int = setting("Maximum number of records in one fetch.", 2_000, at_least=1, at_most=100_000)
    poll_bytes: Bytes = setting("Maximum size of one fetch.", Bytes(1 << 20), at_least=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    default: Seconds = setting(
        "Duration of a lease that is fetched without a session and without a duration of its own.",
        Seconds(30.0),
        at_least=0.1,
    )
    max: Seconds = setting("Maximum duration of a lease, whatever the client asks for.", Seconds(3600.0), at_least=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    attempts: int = setting(
        "Failed deliveries, of the record alone and outside of outages, after which it has failed for good.",
        5,
        at_least=1,
        at_most=1_000_000,
    )
    first: Seconds = setting("Wait before the second attempt.", Seconds(1.0), at_least=0.0)
    factor: float = setting("Factor by which each further wait is longer.", 2.0, at_least=1.0, at_most=100.0)
    max: Seconds = setting("Maximum wait, unless the handler asks for a longer one.", Seconds(300.0), at_least=0.0)
    jitter: float = setting(
        "Share of each wait that is random, which spreads retries out.", 0.2, at_least=0.0, at_most=1.0
    )
    exhausted: Exhausted = setting(
        "What happens to a record that has used up its attempts. `dead-letter`: write it to the dead-letter topic and "
        "go on; `hold`: retry it at the maximum wait while its key or lane waits; `drop`: discard it.",
        Exhausted.DEAD_LETTER,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSettings:
    """Outages: while the handler fails for everything, nothing is split and nothing is dead-lettered."""

    enabled: bool = setting("Detect outages. Off: every failure counts against its records.", True)
    failures: int = setting(
        "Number of different batches that must fail in a row, without a success, to count as an outage. Batches with "
        "records that failed before do not count.",
        3,
        at_least=2,
    )
    lately: Seconds = setting(
        "A failing batch is split if another one succeeded within this time: the handler works, so a record is bad.",
        Seconds(60.0),
        at_least=0.1,
    )
    probe_first: Seconds = setting(
        "Wait after the first probe that fails. The first one is sent at once.", Seconds(0.5), at_least=0.001
    )
    probe_max: Seconds = setting(
        "Maximum wait between probes, and for the result of one.", Seconds(15.0), at_least=0.001
    )
    reject_share: float = setting(
        "Pause the subscription when more than this share of its latest settled records was rejected. 1: never.",
        0.5,
        at_least=0.0,
        at_most=1.0,
    )
    reject_sample: int = setting("Number of settled records that `reject_share` is measured over.", 1_000, at_least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingSettings:
    """With order `none`, records with a long wait are written to the group's retry topic."""

    enabled: bool = setting("Park records with a long wait. Has an effect with order `none` only.", True)
    after: Seconds = setting("Park records that must wait longer than this.", Seconds(30.0), at_least=0.0)
    topic: str = setting(
        "Name of the retry topic. `{group}` stands for the group. What is parked in an earlier one is not read.",
        "{group}.offramp.retry",
    )
    lanes: int = setting(
        "Number of lanes of the retry topic when Offramp creates it. Each lane holds waits of one order of magnitude, "
        "so that short waits do not queue behind long ones.",
        8,
        at_least=1,
        at_most=64,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    topic: str = setting("Name of the dead-letter topic. `{group}` stands for the group.", "{group}.offramp.dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    concurrency: int = setting("Maximum number of batches in flight. 0: no limit.", 0, at_least=0)
    adaptive: bool = setting(
        "Adapt the number of batches in flight to the handler. The limit rises while more batches at a time get more "
        "done. It falls when they take longer or fail more often instead, when most fail, and on OVERLOADED. It starts "
        "low after an outage.",
        False,
    )
    rate: float = setting("Maximum number of records per second. 0: no limit.", 0.0, at_least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    name: str = ""
    broker: str = setting("Name of a broker in `brokers`.", "local")
    topics: tuple[str, ...] = setting("Topics to consume.", at_least=1, example=("orders",))
    group: str = setting("Name of the consumer group on the broker. Empty: the name of the subscription.", "")
    mode: SubscriptionMode = setting(
        "`leases`: workers get batches and settle them; `ranges`: a reader that keeps its own position, such as Spark, "
        "reads by position. One group cannot have both.",
        SubscriptionMode.LEASES,
    )
    order: Order = setting(
        "`none`: any batch goes to any worker; `key`: the records of a key in order, keys in parallel; `lane`: one "
        "batch of a lane at a time.",
        Order.NONE,
    )
    start: Start = setting("Where a new group starts: `earliest` or `latest`.", Start.EARLIEST)
    oversized: Oversized = setting(
        "What happens to a record that is too large for every connected client. `dead-letter`: write it to the "
        "dead-letter topic; `hold`: its lane waits.",
        Oversized.DEAD_LETTER,
    )
    commit_every: Seconds = setting(
        "Time between commits while there is something to commit.", Seconds(0.1), at_least=0.0, at_most=60.0
    )
    commit_timeout: Seconds = setting("Time after which a commit counts as failed.", Seconds(10.0), at_least=0.1)
    batch: BatchSettings = section("How records are grouped into batches.", BatchSettings)
    window: WindowSettings = section(
        "How far deliveries may run ahead of the commit. A crash can replay as much.", WindowSettings
    )
    memory: MemorySettings = section("How much is held in memory.", MemorySettings)
    lease: LeaseSettings = section("How long workers may keep a batch.", LeaseSettings)
    retry: RetrySettings = section("What happens to records that fail.", RetrySettings)
    outage: OutageSettings = section("How an outage is detected: the handler fails for everything.", OutageSettings)
    parking: ParkingSettings = section("How records with a long wait are parked in a retry topic.", ParkingSettings)
    dead_letter: DeadLetterSettings = section("Where records go that have failed for good.", DeadLetterSettings)
    budget: BudgetSettings = section("Limits that protect what the handler depends on.", BudgetSettings)
    push: PushSettings = section("The app, if it is a server that the sidecar calls.", PushSettings)

    @property
    def group_name(self) -> str:
        return self.group or self.name

    @property
    def retry_topic(self) -> str:
        return self.parking.topic.replace("{group}", self.group_name)

    @property
    def dead_letter_topic(self) -> str:
        return self.dead_letter.topic.replace("{group}", self.group_name)

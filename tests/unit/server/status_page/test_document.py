"""The status page from facts to markup, without a browser; `tests/page` opens it in one."""

from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from sidecar.core.failures.dead_letter_topic import DeadLetterEntry
from sidecar.model.records import Record
from sidecar.observability.counters import SETTLE_SECONDS_BOUNDS, Counters
from sidecar.observability.status import (
    BrokerStatus,
    LaneStatus,
    SessionStatus,
    Status,
    SubscriptionState,
    SubscriptionStatus,
)
from sidecar.server.status_page.advice import todo
from sidecar.server.status_page.charts import History, Sample
from sidecar.server.status_page.dead_letter_feed import DeadLetters
from sidecar.server.status_page.document import POLICY, render
from sidecar.server.status_page.event_list import Event
from sidecar.server.status_page.facts import Facts, SubscriptionFacts
from sidecar.server.status_page.subscription_card import longest_holding, worst_lanes
from sidecar.settings import BudgetSettings

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "&lt;b&gt; & <b>",
    "\u202etxt.exe\u2066",
    "a\x00b\x1b[31m\x07",
    "]]>--><!--",
    "{name} `code` %s",
    "x" * 500,
)
_VOID = {"meta", "link"}


class Parser(HTMLParser):
    """Parses a page as a browser would. Fails unless every element is closed in turn."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # Only within SVG does the slash close an element.
        assert "svg" in self.open
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)


def parsed(page: str) -> Parser:
    parser = Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def subscription(**fields: Any) -> SubscriptionFacts:
    own = {name: fields.pop(name) for name in list(fields) if name in SubscriptionFacts.__slots__}
    whole = {
        "name": "orders", "broker": "kafka", "group": "billing", "topics": ("orders",), "order": "none",
        "state": SubscriptionState.RUNNING, **fields,
    }  # fmt: skip
    return SubscriptionFacts(status=SubscriptionStatus(**whole), **own)


def facts(*subscriptions: SubscriptionFacts, **fields: Any) -> Facts:
    status = Status(version="1.2.3", boot=b"", uptime=61.0, subscriptions=tuple(one.status for one in subscriptions))
    return Facts(status=replace(status, **fields.pop("status", {})), subscriptions=subscriptions, **fields)


def words(page: str) -> str:
    return " ".join(" ".join(parsed(page).words).split())


def full_of(text: str) -> Facts:
    """Facts in which everything from outside is this text."""
    entry = DeadLetterEntry(text, text, Record(None, None, (), 0, 0), "g", text, 3, text, 1_700_000_000_000)
    one = subscription(
        name=text, broker=text, group=text, topics=(text,) * 5, trouble=(text,),
        lanes=(LaneStatus(topic=text, lane=0, committed=0, fetched=9, held_by=text, oldest_position=3, oldest=5.0,
                          oldest_with=text, settled_beyond=4),),
        sessions=(SessionStatus(session=b"s", name=text, language=text, library=text, pid=7),),
        troubles=((text, text), ("paused", text)), dead_for=((text, 3),), parked_for=((text, 1),),
        dead_letter_topic=text, dead_letters=DeadLetters(at=1.0, newest=(entry,), total=1),
    )  # fmt: skip
    brokers = (BrokerStatus(name=text, type=text, trouble=text, facts={text: text}),)
    events = (Event(1.0, "warning", text, f"client={text}", 2),)
    return facts(one, status={"brokers": brokers, "version": text, "trouble": (text,)}, events=events)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_text(text: str) -> None:
    """The page has exactly the elements and attributes that it has with harmless text."""
    harmless, hostile = parsed(render(full_of("word"))), parsed(render(full_of(text)))
    shape = [(tag, [*attributes]) for tag, attributes in harmless.elements]
    assert [(tag, [*attributes]) for tag, attributes in hostile.elements] == shape
    assert [tag for tag, _ in hostile.elements].count("script") == 1
    links = {attributes["href"] for tag, attributes in hostile.elements if tag == "a"}
    assert links == {"metrics", "healthz", "readyz", "version"}


def test_what_does_not_print_is_shown_as_such() -> None:
    page = render(full_of("a\x00b\u202ec\nd"))
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c d" in words(page)
    assert "\u202e" not in page
    assert "\x00" not in page


def test_the_policy_forbids_everything_that_is_not_in_the_page() -> None:
    assert POLICY.startswith("default-src 'none'")
    assert "unsafe" not in POLICY
    assert "http:" not in POLICY
    parser = parsed(render(full_of("word")))
    assert not [attributes for _, attributes in parser.elements if "style" in attributes]
    handlers = [name for _, attributes in parser.elements for name in attributes if name.startswith("on")]
    assert handlers == []


def test_every_table_has_a_caption_and_its_cells_have_headings() -> None:
    elements = [tag for tag, _ in parsed(render(full_of("word"))).elements]
    assert elements.count("table") == elements.count("caption") == elements.count("thead") == 5
    for tag, attributes in parsed(render(full_of("word"))).elements:
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
        if tag == "svg" and "aria-hidden" not in attributes:
            assert attributes["aria-label"]


def test_a_thousand_lanes_cost_a_page_of_the_worst() -> None:
    many = [
        LaneStatus(topic="t", lane=n, committed=0, fetched=n, lag=n, oldest_position=1, oldest=5.0) for n in range(1000)
    ]
    many[3] = replace(many[3], held_by="window: waits for the record at 1")
    many[4] = replace(many[4], oldest=900.0)
    shown = worst_lanes(many)
    assert [lane.lane for lane in shown[:3]] == [3, 4, 999]
    page = render(facts(subscription(lanes=tuple(many))))
    assert "The worst 20 of 1,000 lanes." in words(page)
    few = render(facts(subscription(lanes=tuple(many[:20]))))
    assert len(page) < len(few) * 1.1


def test_a_thousand_workers_cost_a_page_of_those_that_hold_longest() -> None:
    many = tuple(
        SessionStatus(session=b"", name=f"worker-{n}", leases=1, oldest_lease=float(n * 7 % 1000)) for n in range(1000)
    )
    assert [session.oldest_lease for session in longest_holding(many)] == [float(n) for n in range(999, 979, -1)]
    page = words(render(facts(subscription(sessions=many))))
    assert "Those 20 of 1,000 workers that have held their batches for longest." in page
    assert "1,000 workers" in page


def test_a_worker_that_lost_its_connection_is_marked() -> None:
    workers = (SessionStatus(session=b"", name="worker-1", language="php", leases=1, away=12.0),)
    assert "php, lost its connection 12 s ago" in words(render(facts(subscription(sessions=workers))))


def test_few_lanes_keep_their_order_so_that_no_row_jumps_about() -> None:
    few = [LaneStatus(topic="t", lane=n, committed=0, fetched=0, lag=100 - n) for n in range(20)]
    assert worst_lanes(few) == few


def test_a_lane_says_what_its_commit_waits_for_and_who_has_it() -> None:
    lane = LaneStatus(
        topic="orders", lane=3, committed=1041, fetched=2000, end=5000, lag=3700, settled_beyond=250,
        in_flight_records=1, oldest_position=1042, oldest=192.0, oldest_with="billing-2", would_be_replayed=251,
    )  # fmt: skip
    page = words(render(facts(subscription(lanes=(lane,)))))
    assert "orders/3 3,700 0 1 0 3 min 12 s at 1042 with billing-2 251" in page
    assert "commit behind 1042 since 3 min 12 s, 250 records done beyond it" in page


def test_lag_that_is_not_known_is_not_said_to_be_none() -> None:
    lane = LaneStatus(topic="orders", lane=0, committed=0, fetched=0)
    assert "orders/0 ? 0 0 0" in words(render(facts(subscription(lanes=(lane,)))))


def _trouble(kind: str, text: str) -> SubscriptionFacts:
    return subscription(troubles=((kind, text),), state=SubscriptionState.PROBING)


def test_trouble_comes_first_with_what_to_do_about_it() -> None:
    page = words(render(facts(_trouble("outage", "the handler fails for everything"))))
    assert "1 thing needs you orders : the handler fails for everything Fix what the handler depends on." in page
    assert "offramp resume orders" in page


def test_probes_before_an_outage_is_certain_call_for_nobody() -> None:
    page = words(render(facts(subscription(state=SubscriptionState.PROBING))))
    assert "things need you" not in page
    assert "Nothing to do yet" in page


def test_trouble_of_the_sidecar_itself_is_told_sentence_by_sentence() -> None:
    trouble = ("clients.app.token_file: /tokens/app is empty", "listen.tls_key: /tls/key is empty")
    page = words(render(facts(subscription(), status={"trouble": trouble})))
    first, second = (f"sidecar : {one} Replace the file by a valid one" for one in trouble)
    assert f"2 things need you {first}" in page
    assert second in page


def test_a_sidecar_without_trouble_says_that_nothing_needs_anybody() -> None:
    page = render(facts(subscription(sessions=(SessionStatus(session=b"s", name="w"),))))
    assert "All is well – nothing needs you." in words(page)
    assert "Nothing to do." in words(page)
    assert "<title>Offramp</title>" in page


@pytest.mark.parametrize("state", SubscriptionState)
def test_every_state_says_what_to_do(state: SubscriptionState) -> None:
    sentence = todo(subscription(state=state, sessions=(SessionStatus(session=b"s"),)))
    assert sentence.endswith(".")
    assert "{" not in sentence


def test_records_that_wait_without_a_worker_are_told_of() -> None:
    waiting = subscription(lanes=(LaneStatus(topic="t", lane=0, committed=0, fetched=0, end=12_345, lag=12_345),))
    assert todo(waiting) == "No worker is connected, and 12,345 records wait: start one."
    assert todo(subscription()) == "No worker is connected; nothing waits for one."


def test_a_budget_is_shown_with_how_much_of_it_is_used() -> None:
    budget = BudgetSettings(concurrency=64, adaptive=True, rate=500.0)
    page = words(render(facts(subscription(leases=12, concurrency_limit=16, budget=budget))))
    assert "Budget 12 batches at most 16 batches, found by trial, at most 500 records/s" in page
    assert "Budget 0 batches no limit" in words(render(facts(subscription())))


def test_dead_letters_and_parked_records_are_counted_by_reason() -> None:
    one = subscription(
        counters=Counters(dead_lettered=7, parked=3),
        dead_for=(("REJECTED: no such account", 5), ("other reasons", 2)),
        parked_for=(("the bank is busy", 3),),
        dead_letter_topic="billing.offramp.dead",
        dead_letters=DeadLetters(at=1.0, trouble="no answer within 5 s"),
    )
    page = words(render(facts(one)))
    assert (
        "7 records were dead-lettered since the start Reason Records REJECTED: no such account 5 other reasons 2"
        in page
    )
    assert "3 records were parked since the start Reason Records the bank is busy 3" in page
    assert "billing.offramp.dead could not be read: no answer within 5 s" in page


def _history(samples: int) -> Iterator[Sample]:
    none = (0,) * (len(SETTLE_SECONDS_BOUNDS) + 1)
    for n in range(samples):
        settled = (*none[:3], n * 10, *none[4:])
        yield Sample(
            at=n * 2.0, fetched=n * 300, delivered=0, acked=n * 200, failed=n * 2, in_flight=n % 7, settled=settled
        )


def test_a_history_is_drawn_without_a_script() -> None:
    history = History()
    for sample in _history(10):
        history.add(sample)
    page = render(facts(subscription(history=history)))
    assert "Acked: 100 records/s now, 100 records/s at the most" in page
    assert "fetched 150/s" in words(page)
    assert "Failed 1 records/s" in words(page)
    assert page.count("<polyline") == 5
    assert "Time to settle: 10 ms for 95 % now" in page


def test_a_page_without_history_draws_an_empty_chart() -> None:
    page = render(facts(subscription()))
    assert "<polyline" not in page
    assert "Acked – records/s" in words(page)


def test_the_title_counts_what_is_wrong() -> None:
    assert "<title>(1) Offramp</title>" in render(facts(_trouble("commit", "commits are held back: no answer")))


def test_a_lane_that_waits_for_one_record_is_told_of_with_who_has_it() -> None:
    lane = LaneStatus(
        topic="orders", lane=3, committed=7, fetched=900, held_by="window: waits for the record at 7",
        oldest_position=7, oldest=192.0, oldest_with="billing-2",
    )  # fmt: skip
    assert todo(subscription(lanes=(lane,), sessions=(SessionStatus(session=b"s"),))) == (
        "Lane orders/3 has been delivered as far as its window allows: it waits for record 7, unsettled for 3 min "
        "12 s, which billing-2 holds."
    )


def test_records_that_were_parked_are_counted_once_and_are_not_late() -> None:
    own = LaneStatus(
        topic="orders", lane=0, committed=0, fetched=9, lag=5, waiting_records=2, oldest_position=1, oldest=3.0
    )
    parked = LaneStatus(
        topic="retry", lane=0, committed=0, fetched=9, lag=40, waiting_records=30, oldest_position=0, oldest=3_000.0,
        parked=True,
    )  # fmt: skip
    one = subscription(
        lanes=(own, parked),
        sessions=(SessionStatus(session=b"s"),),
        waiting_records=32,
        leases=1,
        oldest_unsettled=3_000.0,
    )
    page = words(render(facts(one)))
    assert "To do 5 records behind the end" in page
    assert "Waiting for a retry 2 and 40 parked" in page
    assert "Oldest unsettled 3.0 s since it was fetched" in page
    assert "All is well" in page


def test_a_lane_that_was_blocked_for_a_moment_is_not_called_blocked() -> None:
    lane = LaneStatus(topic="orders", lane=0, committed=0, fetched=9, settled_beyond=7, oldest_position=1, oldest=0.2)
    assert "commit behind" not in render(facts(subscription(lanes=(lane,))))

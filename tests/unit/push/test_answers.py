"""What an HTTP answer says of its batch."""

import json
from typing import Any

import pytest

from sidecar.model.limits import MAX_RETRY_AFTER
from sidecar.model.records import Outcome, Part
from sidecar.push.answers import KIND_HEADER, Answer, Rules, judge, retry_after
from sidecar.push.verdict import NotReached, Settled, Verdict
from sidecar.settings import PushFormat
from tests.unit.push.kit import batch, payload

#: 2026-01-01T00:00:00Z
NEW_YEAR_MS = 1_767_225_600_000

RULES = Rules((400, 413, 415, 422), publishes_replies=False, now_ms=NEW_YEAR_MS)
REPLYING = Rules((400, 413, 415, 422), publishes_replies=True, now_ms=NEW_YEAR_MS)


def answered(status: int, body: bytes = b"", records: int = 3, rules: Rules = RULES, **headers: str) -> Verdict:
    values = [b"%d" % number for number in range(records)]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return judge(Answer(status, named, body), batch(*values), payload(PushFormat.JSON, *values), rules)


def nack_all(verdict: Verdict, *words: str) -> None:
    assert isinstance(verdict, Settled)
    assert (verdict.outcome, verdict.parts) == (Outcome.NACK, ())
    for word in words:
        assert word in verdict.reason


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"null", b"true", b'"fine"', b"{}", b"[]", b'{"failures": []}', b'{"batchItemFailures": null}',
     b'{"id": 7}', b'{"status": "SUCCESS"}', b"<html>fine</html>"],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_acks_the_batch_unless_its_body_names_failures(status: int, body: bytes) -> None:
    assert answered(status, body) == Settled(str(status), Outcome.ACK)


def test_a_2xx_names_records_that_failed() -> None:
    failures = [
        {"index": 2, "outcome": "reject", "reason": "no order"},
        {"index": 0, "outcome": "nack", "reason": "later", "retry_after": "5s"},
    ]
    verdict = answered(200, json.dumps({"failures": failures}).encode())
    parts = (Part(0, 1, Outcome.NACK, "later", 5.0), Part(2, 1, Outcome.REJECT, "no order"))
    assert verdict == Settled("200", Outcome.ACK, parts=parts)


def test_a_result_counts_whatever_media_type_it_is_said_to_be() -> None:
    verdict = answered(200, b' {"failures": [{"index": 1}]}', content_type="text/html")
    assert verdict == Settled("200", Outcome.ACK, parts=(Part(1, 1, Outcome.NACK),))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b'{"failures": [', "not JSON"),
        (b"{" + b'"a":{' * 5000, "not JSON"),
        (b'{"failures": {"index": 1}}', "failures is not a list"),
        (b'{"failures": [7]}', "failures[0] is not an object"),
        (b'{"failures": [{"index": 3}]}', "index 3 is not among the 3 records"),
        (b'{"failures": [{"index": -1}]}', "index -1"),
        (b'{"failures": [{"index": true}]}', "index true"),
        (b'{"failures": [{"index": "1"}]}', 'index "1"'),
        (b'{"failures": [{"reason": "?"}]}', "index null"),
        (b'{"failures": [{"index": 1}, {"index": 1}]}', "named twice"),
        (b'{"failures": [{"index": 1, "outcome": "ack"}]}', "not one of nack, reject, release, overloaded"),
        (b'{"failures": [{"index": 1, "outcome": 4}]}', "outcome 4"),
        (b'{"failures": [{"index": 1, "retry_after": "soon"}]}', 'retry_after "soon"'),
        (b'{"failures": [{"index": 1, "retry_after": -1}]}', "retry_after -1"),
        (b'{"failures": [{"index": 1, "retry_after": NaN}]}', "retry_after NaN"),
        (b'{"batchItemFailures": [{"itemIdentifier": "x"}]}', 'itemIdentifier "x" is not among the ids'),
        (b'{"batchItemFailures": [{}]}', "itemIdentifier null"),
    ],
)
def test_a_result_that_cannot_be_understood_nacks_the_batch(body: bytes, word: str) -> None:
    verdict = answered(200, body)
    nack_all(verdict, word)
    assert isinstance(verdict, Settled)
    assert verdict.possibly_processed


def test_a_json_body_that_does_not_parse_nacks_the_batch() -> None:
    nack_all(answered(200, b"oops", content_type="application/problem+json"), "not JSON")


def test_delays_are_written_as_numbers_or_with_units_and_kept_within_bounds() -> None:
    for written, seconds in (("1m", 60.0), ("7", 7.0), (0.5, 0.5), (0, 0.0), (10**12, MAX_RETRY_AFTER)):
        body = json.dumps({"failures": [{"index": 0, "retry_after": written}]}).encode()
        verdict = answered(200, body)
        assert isinstance(verdict, Settled)
        assert verdict.parts[0].retry_after == seconds


def test_a_delay_of_a_reject_means_nothing() -> None:
    verdict = answered(200, b'{"failures": [{"index": 0, "outcome": "reject", "retry_after": 5}]}')
    assert isinstance(verdict, Settled)
    assert verdict.parts == (Part(0, 1, Outcome.REJECT),)


def test_batch_item_failures_name_records_by_id() -> None:
    verdict = answered(200, b'{"batchItemFailures": [{"itemIdentifier": "orders/2/11"}]}')
    assert isinstance(verdict, Settled)
    assert [(part.first, part.outcome) for part in verdict.parts] == [(1, Outcome.NACK)]


def test_all_records_with_an_id_that_producers_gave_twice_are_nacked() -> None:
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"same")]
    pushed = batch(b"a", b"b", headers=headers)
    sent = payload(PushFormat.CLOUDEVENTS, b"a", b"b", headers=headers)
    verdict = judge(Answer(200, {}, b'{"batchItemFailures": [{"itemIdentifier": "same"}]}'), pushed, sent, RULES)
    assert isinstance(verdict, Settled)
    assert [part.first for part in verdict.parts] == [0, 1]


def test_the_words_of_dapr_are_understood() -> None:
    def outcomes(status: str, records: int) -> Any:
        verdict = answered(200, json.dumps({"status": status}).encode(), records)
        assert isinstance(verdict, Settled)
        return [(part.first, part.count, part.outcome) for part in verdict.parts]

    assert outcomes("SUCCESS", 1) == []
    assert outcomes("RETRY", 1) == [(0, 1, Outcome.NACK)]
    assert outcomes("DROP", 1) == [(0, 1, Outcome.REJECT)]
    assert outcomes("DROP", 3) == [(0, 3, Outcome.NACK)]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_some_statuses_reject_a_record_alone_and_split_a_batch(status: int) -> None:
    assert answered(status, records=1) == Settled(str(status), Outcome.REJECT, f"HTTP {status}")
    assert answered(status, records=2) == Settled(str(status), Outcome.NACK, f"HTTP {status}")


def test_which_statuses_reject_can_be_chosen() -> None:
    rules = Rules((404,), publishes_replies=False, now_ms=0)
    assert answered(404, records=1, rules=rules) == Settled("404", Outcome.REJECT, "HTTP 404")
    assert answered(400, records=1, rules=rules) == Settled("400", Outcome.NACK, "HTTP 400")


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_a_wrong_route_counts_for_nothing(status: int) -> None:
    verdict = answered(status, records=1)
    assert isinstance(verdict, NotReached)
    assert f"HTTP {status}" in verdict.text


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_app_is_heard(status: int) -> None:
    assert answered(status) == Settled(str(status), Outcome.OVERLOADED, f"HTTP {status}")
    assert answered(status, retry_after="7") == Settled(str(status), Outcome.OVERLOADED, f"HTTP {status}", 7.0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("9" * 400, MAX_RETRY_AFTER),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:01:00", 60.0),
        ("Thu, 01 Jan 9999 00:01:00 GMT", MAX_RETRY_AFTER),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NEW_YEAR_MS) == seconds


@pytest.mark.parametrize("status", [100, 300, 301, 302, 307, 308, 402, 406, 408, 409, 410, 500, 501, 507, 599])
def test_everything_else_is_a_nack(status: int) -> None:
    assert answered(status, records=1) == Settled(str(status), Outcome.NACK, f"HTTP {status}")


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxy_that_lost_the_app_leaves_the_outcome_open(status: int) -> None:
    assert answered(status) == Settled(str(status), Outcome.NACK, f"HTTP {status}", possibly_processed=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail": "no such customer"}', "HTTP 500: no such customer"),
        (b'{"title": "Bad", "detail": ""}', "HTTP 500: Bad"),
        (b'{"error": {"code": 7}}', "HTTP 500"),
        (b"{oops", "HTTP 500"),
        (b"<html>a page of many bytes", "HTTP 500"),
    ],
)
def test_the_reason_is_what_a_json_body_says(body: bytes, said: str) -> None:
    assert answered(500, body) == Settled("500", Outcome.NACK, said)


def test_an_answer_beyond_the_limit_nacks_the_batch() -> None:
    verdict = judge(Answer(200, {}, b"x", too_large=True), batch(b"1"), payload(PushFormat.JSON, b"1"), RULES)
    nack_all(verdict, "push.max_answer")


def test_with_a_reply_topic_a_body_is_a_reply_unless_it_says_that_it_is_a_result() -> None:
    reply = answered(200, b"done", 1, REPLYING, content_type="text/plain")
    assert isinstance(reply, Settled)
    assert reply.outcome is Outcome.ACK
    assert reply.reply is not None
    assert reply.reply.value == b"done"
    result = answered(200, b'{"failures": [{"index": 0}]}', 1, REPLYING, **{KIND_HEADER: "result"})
    assert result == Settled("200", Outcome.ACK, parts=(Part(0, 1, Outcome.NACK),))
    assert answered(204, b"", 1, REPLYING) == Settled("204", Outcome.ACK)


def test_a_reply_that_nobody_would_publish_is_not_an_ack() -> None:
    nack_all(answered(200, b"done", 1, RULES, **{KIND_HEADER: "reply"}), "push.reply_topic is not set")


def test_a_body_of_an_unknown_kind_is_not_an_ack() -> None:
    nack_all(answered(200, b"done", 1, RULES, **{KIND_HEADER: "receipt"}), '"receipt"')


def test_a_reply_has_the_key_and_the_trace_of_its_record_and_the_attributes_of_an_event() -> None:
    pushed = batch(b"1", key=b"k", headers=[("traceparent", b"00-1-2-01")])
    headers = {"content-type": "text/plain", "ce-id": "a%20b", "ce-type": "t", "server": "x"}
    verdict = judge(Answer(200, headers, b"done"), pushed, payload(PushFormat.JSON, b"1"), REPLYING)
    assert isinstance(verdict, Settled)
    assert verdict.reply is not None
    assert verdict.reply.key == b"k"
    assert {header.name: header.value for header in verdict.reply.headers} == {
        "offramp-in-reply-to": b"orders/2/10",
        "content-type": b"text/plain",
        "ce_id": b"a b",
        "ce_type": b"t",
        "traceparent": b"00-1-2-01",
    }

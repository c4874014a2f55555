"""A batch as body and headers of a call, read by the SDK of CloudEvents where there are events."""

import base64
import json
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.records import Redelivery
from sidecar.push.formats import Payload
from sidecar.settings import PushFormat, PushSettings
from tests.unit.push.kit import payload

BATCHED, STRUCTURED, BINARY = (
    PushFormat.CLOUDEVENTS,
    PushFormat.CLOUDEVENTS_STRUCTURED,
    PushFormat.CLOUDEVENTS_BINARY,
)


def headers(sent: Payload) -> dict[str, str]:
    assert len({name for name, _ in sent.headers}) == len(sent.headers), "a name is there twice"
    return dict(sent.headers)


def sdk(sent: Payload) -> Any:
    return from_http_event(HTTPMessage(headers(sent), sent.body))


def members(sent: Payload) -> list[dict[str, Any]]:
    return json.loads(sent.body)  # type: ignore[no-any-return]


def test_json_says_all_that_is_known_of_each_record() -> None:
    told = [Redelivery(1, 1, 3, True)]
    sent = payload(PushFormat.JSON, b"1", None, key=b"k", headers=[("a", b"b"), ("n", None)], redeliveries=told,
                   timestamp_ms=5)  # fmt: skip
    assert headers(sent)["content-type"] == "application/json"
    common = {"lane": 2, "timestamp_ms": 5, "key": "k",
              "headers": [{"name": "a", "value": "b"}, {"name": "n", "value": None}]}  # fmt: skip
    assert json.loads(sent.body) == {
        "batch": "ab" * 16,
        "subscription": "orders",
        "topic": "orders",
        "records": [
            {"id": "orders/2/10", "position": 10, "value": "1", "attempt": 1, "possibly_processed": False, **common},
            {"id": "orders/2/11", "position": 11, "value": None, "attempt": 3, "possibly_processed": True, **common},
        ],
    }
    assert sent.ids == ["orders/2/10", "orders/2/11"]


@given(st.binary(max_size=50), st.binary(max_size=10))
def test_bytes_that_are_no_text_come_as_base64(value: bytes, key: bytes) -> None:
    (record,) = json.loads(payload(PushFormat.JSON, value, key=key).body)["records"]
    for name, bytes_ in (("value", value), ("key", key)):
        got = base64.b64decode(record[f"{name}_base64"]) if f"{name}_base64" in record else record[name].encode()
        assert got == bytes_


def test_a_call_with_one_record_says_all_of_it_in_headers() -> None:
    told = [Redelivery(0, 1, 2, True)]
    sent = headers(payload(PushFormat.RAW, b"v", key=b"k\xff", redeliveries=told, timestamp_ms=5))
    assert {name: value for name, value in sent.items() if name.startswith("offramp-")} == {
        "offramp-batch": "ab" * 16,
        "offramp-subscription": "orders",
        "offramp-topic": "orders",
        "offramp-records": "1",
        "offramp-record": "orders/2/10",
        "offramp-lane": "2",
        "offramp-position": "10",
        "offramp-timestamp-ms": "5",
        "offramp-attempt": "2",
        "offramp-possibly-processed": "true",
        "offramp-key": "k%FF",
    }


def test_raw_is_the_value_with_the_headers_of_the_record() -> None:
    mine = [("Tenant", b"a b\n\xc3\xa4"), ("content-type", b"image/png"), ("traceparent", b"00-1-2-01")]
    sent = payload(PushFormat.RAW, b"\x00\xff", headers=mine)
    assert sent.body == b"\x00\xff"
    assert headers(sent)["tenant"] == "a b%0A%C3%A4"
    assert headers(sent)["content-type"] == "image/png"
    assert headers(sent)["traceparent"] == "00-1-2-01"


@pytest.mark.parametrize(
    "name",
    ["Content-Length", "transfer-encoding", "host", "Connection", "authorization", "cookie", "offramp-attempt",
     "webhook-signature", "ce-id", "x-forwarded-for", "x_y", "a b", "a:b", "", "a\r\nb", "\xe4", "api-key"],
)  # fmt: skip
def test_a_record_cannot_choose_headers_that_frame_or_vouch_for_a_call(name: str) -> None:
    settings = PushSettings(url="http://app", format=PushFormat.RAW, headers={"API-Key": "x"})
    without = headers(payload(PushFormat.RAW, b"v", settings=settings))
    assert headers(payload(PushFormat.RAW, b"v", settings=settings, headers=[(name, b"evil")])) == without


def test_headers_of_a_record_are_bounded() -> None:
    many = [(f"h{number}", b"x" * 100) for number in range(1000)]
    sent = headers(payload(PushFormat.RAW, b"v", headers=many))
    assert sum(len(name) + len(value) for name, value in sent.items()) < 6_000


ANY_HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=5)
ANY_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
).map(lambda found: json.dumps(found).encode())
TYPES = [None, b"application/json", b"text/plain", b"application/cloudevents+json", b"x/y"]


@given(ANY_HEADERS, st.none() | st.binary(max_size=20), st.sampled_from([PushFormat.RAW, BINARY, STRUCTURED, BATCHED]))
def test_no_header_of_a_call_can_break_out_of_its_line(
    found: list[tuple[str, bytes | None]], key: bytes | None, format_: PushFormat
) -> None:
    for name, value in payload(format_, b"v", headers=found, key=key).headers:
        assert name.isascii()
        assert name.isprintable()
        assert value.isascii()
        assert value.isprintable()


def test_null_and_empty_values_differ() -> None:
    assert headers(payload(PushFormat.RAW, None))["offramp-value"] == "null"
    assert "offramp-value" not in headers(payload(PushFormat.RAW, b""))
    null, empty = members(payload(BATCHED, None, b""))
    assert "data" not in null
    assert empty["data"] == ""


@pytest.mark.parametrize("format_", [STRUCTURED, BINARY])
def test_the_sdk_reads_single_events(format_: PushFormat) -> None:
    event = sdk(payload(format_, b'{"n": 1}', key=b"k \xc3\xa4", timestamp_ms=1_767_225_600_123))
    assert event.get_data() == {"n": 1}
    found = event.get_attributes()
    assert found["id"] == "orders/2/10"
    assert found["source"] == "/offramp/orders"
    assert found["type"] == "offramp.record"
    assert found["datacontenttype"] == "application/json"
    assert found["time"].isoformat() == "2026-01-01T00:00:00.123000+00:00"
    assert found["partitionkey"] == "k ä"
    assert str(found["position"]) == "10"
    assert str(found["attempt"]) == "1"


def test_the_sdk_reads_each_event_of_a_batch() -> None:
    sent = payload(BATCHED, b'{"n": 1}', b"text", b"\xff", None, redeliveries=[Redelivery(0, 1, 2, True)])
    assert headers(sent)["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    events = [
        from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, json.dumps(one).encode()))
        for one in members(sent)
    ]
    assert [event.get_data() for event in events] == [{"n": 1}, "text", b"\xff", None]
    assert [event.get_id() for event in events] == list(sent.ids)
    assert events[0].get_extension("attempt") == 2
    assert events[0].get_extension("possiblyprocessed") is True


def test_json_goes_into_an_event_as_it_was_written() -> None:
    for value in (b"1.0", b"12345678901234567890123", b'{"a": 1, "a": 2}', b" [1e400] "):
        assert b'"data":' + value in payload(BATCHED, value).body


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"{", b"\xef\xbb\xbf1", b"1\x00"])
def test_what_is_not_quite_json_is_text(value: bytes) -> None:
    (event,) = members(payload(BATCHED, value))
    assert event["datacontenttype"] == "text/plain"
    assert event["data"] == value.decode()


def test_a_type_in_a_header_is_kept_even_if_the_value_does_not_fit() -> None:
    (event,) = members(payload(BATCHED, b"{", headers=[("Content-Type", b"application/json")]))
    assert event["datacontenttype"] == "application/json"
    assert base64.b64decode(event["data_base64"]) == b"{"


def test_an_event_of_the_kafka_binding_keeps_its_attributes() -> None:
    mine = [("ce_specversion", b"1.0"), ("ce_id", b"7"), ("ce_source", b"/shop"), ("ce_type", b"order.made"),
            ("ce_tenant", b"acme"), ("ce_data", b"evil"), ("content-type", b"text/plain")]  # fmt: skip
    for format_ in (STRUCTURED, BINARY):
        event = sdk(payload(format_, b"5", headers=mine))
        assert (event.get_id(), event.get_source(), event.get_type()) == ("7", "/shop", "order.made")
        assert event.get_extension("tenant") == "acme"
        assert event.get_extension("offrampid") == "orders/2/10"
        assert event.get_data() == "5"


def test_an_event_in_a_value_is_unwrapped() -> None:
    inner = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "t", "data": {"n": 1}, "count": 3}
    mine = [("content-type", b"application/cloudevents+json; charset=utf-8")]
    for format_ in (STRUCTURED, BINARY):
        event = sdk(payload(format_, json.dumps(inner).encode(), headers=mine))
        assert (event.get_id(), event.get_data()) == ("7", {"n": 1})
    bytes_ = {**inner, "data_base64": base64.b64encode(b"\xff").decode(), "datacontenttype": "image/png"}
    del bytes_["data"]
    assert payload(BINARY, json.dumps(bytes_).encode(), headers=mine).body == b"\xff"


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode) | ANY_JSON, st.sampled_from(TYPES))
def test_any_value_makes_an_event_that_parses(value: bytes, content_type: bytes | None) -> None:
    mine = [("content-type", content_type)] if content_type else []
    (event,) = members(payload(BATCHED, value, headers=mine))
    assert event["specversion"] == "1.0"
    assert {"id", "source", "type"} <= event.keys()


def test_half_a_surrogate_pair_in_an_event_breaks_nothing() -> None:
    inner = rb'{"specversion": "1.0", "id": "\ud800", "source": "/", "type": "t", "data": "\udfff"}'
    mine = [("content-type", b"application/cloudevents+json")]
    assert members(payload(BATCHED, inner, headers=mine))[0]["data"] == "\udfff"
    assert headers(payload(BINARY, inner, headers=mine))["ce-id"] == "?"


def test_the_id_of_a_call_is_that_of_its_only_record_or_else_of_its_batch() -> None:
    assert payload(PushFormat.JSON, b"1").id == "orders/2/10"
    assert payload(PushFormat.JSON, b"1", b"2").id == "ab" * 16

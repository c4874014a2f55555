"""Fencing tokens, and how brokers store them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.brokers.fencing import Attached, Fence, check_token, decode, encode, is_token, newest, next_token
from sidecar.brokers.kafka.commit_metadata import Stamp
from sidecar.brokers.kafka.commit_metadata import decode as decode_acks
from sidecar.brokers.kafka.commit_metadata import encode as encode_acks
from sidecar.model.errors import Fenced, Refused
from sidecar.model.records import Commit, Run

NOW = 1_800_000_000_000


def test_each_token_is_newer_than_the_one_before() -> None:
    token = 0
    for _ in range(1_000):
        later = next_token(token, NOW)
        assert later > token
        assert is_token(later)
        assert later < 1 << 63
        token = later


def test_a_token_is_newer_than_one_that_the_broker_has_forgotten() -> None:
    forgotten = next_token(next_token(0, NOW), NOW)
    # A week later, after which Kafka forgets a group that nobody has committed for.
    assert next_token(0, NOW + 7 * 24 * 3600 * 1000) > forgotten


def test_a_clock_that_was_put_back_makes_no_older_token() -> None:
    assert next_token(next_token(0, NOW), 0) > next_token(0, NOW)


def test_two_who_attach_at_the_same_time_are_told_apart() -> None:
    assert len({next_token(0, NOW) for _ in range(20)}) > 1


@pytest.mark.parametrize("number", [0, 1, 7, 12345, 2**32, 2**63 - 1, 2**64 - 1])
def test_numbers_that_somebody_made_up_are_no_tokens(number: int) -> None:
    assert not is_token(number)


def test_only_the_newest_token_passes() -> None:
    old = next_token(0, NOW)
    new = next_token(old, NOW)
    attached = Attached(new, "clicks", 1)
    for exact in (True, False):
        check_token(new, attached, exact=exact)
        with pytest.raises(Fenced, match=f"clicks, token {new}"):
            check_token(old, attached, exact=exact)
        with pytest.raises(Refused, match="token 7 was never issued"):
            check_token(7, attached, exact=exact)


def test_a_token_that_is_newer_than_what_is_stored_passes_where_the_broker_may_forget() -> None:
    old = next_token(0, NOW)
    new = next_token(old, NOW)
    for attached in (None, Attached(old, "", 1)):
        check_token(new, attached, exact=False)
        with pytest.raises(Refused, match="call Attach"):
            check_token(new, attached, exact=True)


@given(st.text(max_size=200), st.integers(0, 2**50), st.booleans())
def test_a_fence_is_read_as_it_was_written(reader: str, since_ms: int, pinned: bool) -> None:
    fence = Fence(Attached(next_token(0, NOW), reader, since_ms), pinned)
    assert decode(encode(fence)) == fence


@given(st.text(max_size=60))
def test_texts_of_others_are_no_fence(text: str) -> None:
    assert decode(text) is None
    assert decode("offramp-ranges:1:" + text) is None


def test_readers_of_leases_and_of_ranges_ignore_the_texts_of_each_other() -> None:
    stamp = Stamp("cluster", "topic")
    fence = encode(Fence(Attached(next_token(0, NOW), "clicks", 1), pinned=True))
    assert decode_acks(fence, stamp, 5, 100) == Commit(5)
    assert decode(encode_acks(stamp, Commit(5, (Run(7, 9),)))) is None


def test_the_newest_of_all_lanes_counts() -> None:
    old = Attached(next_token(0, NOW), "old", 1)
    new = Attached(next_token(old.token, NOW), "new", 2)
    assert newest([None, Fence(old, pinned=True), Fence(new, pinned=False), None]) == new
    assert newest([None]) is None

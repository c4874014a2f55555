"""Message ids of Pulsar as positions, and which message stands where."""

import pulsar
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.brokers.pulsar.held import Held
from sidecar.brokers.pulsar.names import full, lane_for, path, pattern, short, split
from sidecar.brokers.pulsar.positions import Id, after, end, pack, unpack
from sidecar.brokers.pulsar.records import key_and_headers, key_and_properties
from sidecar.model.records import Commit, Header, Run
from tests.unit.brokers.pulsar.pulsar_kit import MessageId

ids = st.tuples(st.integers(0, (1 << 30) - 1), st.integers(0, (1 << 22) - 1), st.integers(0, (1 << 11) - 1))


@given(ids, ids)
def test_positions_compare_as_ids_do_and_tell_them(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (pack(*one) < pack(*other)) == (one < other)
    assert unpack(pack(*one)) == one
    assert 0 <= pack(*one) < 1 << 63


def test_an_id_that_does_not_fit_has_no_position() -> None:
    assert pack(1 << 30, 0) == pack(0, 1 << 22) == pack(0, 0, 1 << 11) == pack(-1, -1) == -1
    assert after(3, -1) == pack(3, 0)
    assert after(3, 7) == pack(3, 8)


def test_the_end_lies_after_the_last_message_also_if_that_has_no_position() -> None:
    assert end(3, 7, -1) == pack(3, 7) + 1
    assert end(3, 7, 2_047) == end(3, 7, 5_000) == pack(3, 8)
    assert end(1 << 30, 0, 0) == end(-1, -1, -1) == -1


def test_what_arrives_in_order_stands_at_its_id() -> None:
    held = Held()
    assert [held.arrive(MessageId(4, entry)) for entry in range(3)] == [pack(4, entry) for entry in range(3)]


def test_what_a_lost_consumer_had_stands_at_the_next_free_position() -> None:
    held = Held()
    first = held.arrive(MessageId(4, 10))
    late = MessageId(4, 2)
    assert held.arrive(late) == first + 1
    assert held.arrive(MessageId(4, 11)) == pack(4, 11)
    assert held.take(Commit(first, (Run(first + 1, first + 2),))).messages == (late,)


def test_what_arrives_again_while_it_is_held_is_no_news() -> None:
    held = Held()
    for message in (MessageId(4, 1), MessageId(4, 2), MessageId(3, 9), MessageId(1 << 40, 0), MessageId(1 << 40, 1)):
        assert held.arrive(message) >= 0
        assert held.arrive(message) == -1
    # Once it is acked, it is news: the ack may have been lost, or somebody has reset the cursor.
    held.take(Commit(held.next))
    assert held.arrive(MessageId(4, 1)) >= 0


def test_ids_that_do_not_fit_are_consumed_all_the_same() -> None:
    held = Held()
    messages = [MessageId(4, 0, index) for index in range(5000)]
    positions = [held.arrive(message) for message in messages]
    assert positions == sorted(set(positions))
    assert held.take(Commit(positions[-1] + 1)).messages == tuple(messages)
    assert not len(held)


def test_what_is_held_can_be_counted_with_ids_of_the_library() -> None:
    held = Held()
    first, *_ = [held.arrive(pulsar.MessageId(-1, 4, entry, -1)._msg_id) for entry in range(3)]
    held.take(Commit(first, (Run(pack(4, 1), pack(4, 2)),)))
    assert len(held) == 2


def test_what_shares_an_entry_with_the_place_that_was_sought_is_passed_over() -> None:
    held = Held()
    held.clear(pack(4, 7, 3), sought=True)
    before = [MessageId(4, 7, index) for index in range(3)]
    assert [held.arrive(message) for message in before] == [-1] * 3
    assert held.passed_over == before
    assert held.arrive(MessageId(4, 7, 3)) == pack(4, 7, 3)
    # Only what comes first: later it is what somebody has reset the cursor to.
    assert held.arrive(before[0]) >= 0


def test_where_one_consumer_has_a_lane_alone_what_was_acked_comes_only_if_the_broker_has_gone_back() -> None:
    held = Held(ascending=True)
    held.clear(pack(4, 1))
    for entry in range(1, 4):
        assert held.arrive(MessageId(4, entry)) == pack(4, entry)
    # What is in hand comes again when the library has connected anew.
    assert held.arrive(MessageId(4, 1)) == -1
    assert not held.gone_back
    held.take(Commit(pack(4, 1), (Run(pack(4, 2), pack(4, 3)),)))
    assert held.arrive(MessageId(4, 2)) == -1
    assert held.gone_back
    held.clear(pack(4, 1))
    assert not held.gone_back
    # Before the place where the group was when it was joined, as well.
    assert held.arrive(MessageId(4, 0)) == -1
    assert held.gone_back


def test_ids_that_do_not_fit_are_no_way_back() -> None:
    held = Held(ascending=True)
    messages = [*(MessageId(4, 0, index) for index in range(3000)), *(MessageId(4, entry) for entry in range(1, 9))]
    positions = [held.arrive(message) for message in messages]
    assert positions == sorted(set(positions))
    assert not held.gone_back
    # Positions do not tell any more which entries have come: each message is acked by itself.
    assert held.take(Commit(held.next)) == (None, tuple(messages))
    assert held.arrive(MessageId(4, 0, 2999)) == -1
    assert held.gone_back


@settings(deadline=None)
@given(st.data())
def test_every_message_is_acked_once_whatever_the_order_of_arrival_and_commits(data: st.DataObject) -> None:
    held, arrived, acked = Held(), {}, []
    for _ in range(data.draw(st.integers(1, 30))):
        message = MessageId(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 5)), data.draw(st.integers(-1, 3)))
        position = held.arrive(message)
        found = Id(message.ledger, message.entry, max(0, message.index))
        assert (position < 0) == (found in arrived.values())
        if position >= 0:
            assert position > max(arrived, default=-1)
            arrived[position] = found
        settled = set(data.draw(st.sets(st.sampled_from(sorted(arrived))))) if arrived else set()
        floor = min(set(arrived) - settled, default=held.next)
        beyond = tuple(Run(one, one + 1) for one in sorted(settled) if one > floor)
        taken = held.take(Commit(floor, beyond))
        told = [Id(m.ledger_id(), m.entry_id(), max(0, m.batch_index())) for m in taken.messages]
        assert told == [arrived.pop(one) for one in sorted(one for one in arrived if one < floor or one in settled)]
        acked += told
    assert len(held) == len(arrived)


keys = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
headers = st.lists(
    st.builds(Header, st.text(max_size=6), st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode)),
    max_size=5,
)


@given(keys, headers)
def test_keys_and_headers_come_back_exactly(key: bytes | None, said: list[Header]) -> None:
    text, properties = key_and_properties(key, said)
    assert key_and_headers(properties, text.encode()) == (key, tuple(said))


@given(st.text(max_size=12), st.sampled_from(["[[1, 2]]", '[["a", 5]]', "[1]", "{}", "null", "[[]]", "5"]) | st.text())
def test_properties_that_only_look_like_ours_are_properties(key: str, said: str) -> None:
    found, headers = key_and_headers({"offramp-key": key, "offramp-headers": said, "a": "1"}, b"key")
    assert found is not None
    assert all(isinstance(name, str) for name, _ in headers)


def test_what_pulsar_can_say_itself_it_says() -> None:
    assert key_and_properties(b"key", [Header("a", b"1"), Header("b", b"2")]) == ("key", {"a": "1", "b": "2"})


def test_names() -> None:
    assert full("orders", "public/default") == "persistent://public/default/orders"
    assert full("persistent://a/b/orders", "public/default") == "persistent://a/b/orders"
    assert short("persistent://public/default/orders", "public/default") == "orders"
    assert path("persistent://a/b/orders") == "persistent/a/b/orders"
    assert split("orders-partition-12") == ("orders", 12)
    assert split("orders") == ("orders", -1)
    namespace, wanted = pattern("^orders-.*", "public/default")
    assert namespace == "public/default"
    assert wanted.fullmatch("persistent://public/default/orders-eu")


def test_a_key_goes_where_the_java_client_sends_it() -> None:
    # "orders-7".hashCode() and "ключ".hashCode(), by Java.
    assert lane_for("orders-7", 1 << 31) == 1234322255
    assert lane_for("ключ", 1 << 31) == 33309882

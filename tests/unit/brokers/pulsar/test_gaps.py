"""For which entries of Pulsar one ack may speak: none that has not arrived, and that the broker has no ack for."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.brokers.pulsar.admin import Standing
from sidecar.brokers.pulsar.held import Held
from sidecar.brokers.pulsar.lane import PulsarLane
from sidecar.brokers.pulsar.positions import Id, pack
from sidecar.brokers.pulsar.source import PulsarSource
from sidecar.brokers.pulsar.withheld import Withheld
from sidecar.model.records import Commit, Lane, Run
from tests.unit.brokers.pulsar.pulsar_kit import FakeConsumer, FakeOpening, MessageId, bench, source_on


def joined(*, start: int = pack(4, 0)) -> Held:
    """A lane that one consumer has alone, of which all before `start` is acked."""
    held = Held(ascending=True)
    held.clear(start)
    return held


def arrive(held: Held, *entries: int, ledger: int = 4) -> list[MessageId]:
    ids = [MessageId(ledger, entry) for entry in entries]
    for id_ in ids:
        assert held.arrive(id_) >= 0
    return ids


def test_one_ack_speaks_for_entries_that_have_all_arrived() -> None:
    held = joined()
    arrive(held, 0, 1, 2)
    assert held.take(Commit(pack(4, 1) + 1)) == ((4, 1), ())
    assert not held.has_gaps


def test_of_a_batch_that_may_have_more_each_message_is_acked_by_itself() -> None:
    held = joined()
    arrive(held, 0, 1)
    batch = [MessageId(4, 2, index) for index in (0, 3)]
    for id_ in batch:
        held.arrive(id_)
    assert held.take(Commit(held.next)) == ((4, 1), tuple(batch))
    # It was whole, as the next entry shows.
    rest = MessageId(4, 2, 4)
    held.arrive(rest)
    arrive(held, 3)
    assert held.take(Commit(held.next)) == ((4, 3), ())


def test_behind_an_entry_that_has_not_come_each_message_is_acked_by_itself() -> None:
    held = joined()
    _, between, whole = arrive(held, 0, 2, 3)
    # 4:1 is the first chunk of a message, and 4:3 the last: it stands there.
    assert held.take(Commit(pack(4, 3))) == ((4, 0), (between,))
    (later,) = arrive(held, 4)
    assert held.take(Commit(held.next)) == (None, (whole, later))


def test_a_gap_before_the_first_message_is_one_too() -> None:
    held = joined(start=pack(4, 5))
    ids = arrive(held, 6)
    assert held.take(Commit(held.next)) == (None, tuple(ids))


def test_where_a_lane_begins_is_not_always_known() -> None:
    held = Held(ascending=True)
    held.clear(0)
    first = arrive(held, 5)
    held.clear(pack(4, 5), acked_before=False)
    second = arrive(held, 5)
    assert held.take(Commit(held.next)) == (None, tuple(second))
    assert first == second


def test_a_new_ledger_may_hide_the_end_of_the_one_before() -> None:
    held = joined()
    arrive(held, 0)
    new = arrive(held, 0, 1, ledger=7)
    assert held.take(Commit(held.next)) == ((4, 0), tuple(new))


def test_one_ack_speaks_for_many_again_when_the_broker_has_passed_the_gap() -> None:
    held = joined()
    arrive(held, 0)
    arrive(held, 0, 1, ledger=7)
    held.take(Commit(held.next))
    held.acked_before(pack(4, 1))
    assert held.has_gaps
    held.acked_before(pack(7, 2))
    assert not held.has_gaps
    arrive(held, 2, 3, ledger=7)
    assert held.take(Commit(held.next)) == ((7, 3), ())


def test_gaps_that_were_passed_are_not_kept_for_ever() -> None:
    held = joined()
    for entry in range(1, 2001, 2):
        arrive(held, entry)
        held.take(Commit(held.next))
    assert len(held._gaps) == 1
    # All of them must be passed.
    held.acked_before(pack(4, 1998))
    assert held.has_gaps
    held.acked_before(pack(4, 1999))
    assert not held.has_gaps


def test_what_was_acked_beyond_a_position_has_arrived() -> None:
    held = joined()
    arrive(held, 0, 1, 2)
    assert held.take(Commit(pack(4, 0), (Run(pack(4, 1), pack(4, 2)),))) == (None, (MessageId(4, 1),))
    assert held.take(Commit(held.next)) == ((4, 2), ())


@settings(deadline=None)
@given(st.data())
def test_an_ack_never_speaks_for_what_has_not_come(data: st.DataObject) -> None:
    """Entries of two ledgers, some of them batches, some withheld; commits, and what the broker says in between."""
    held = joined(start=pack(4, 0))
    entries = [(4, entry) for entry in range(data.draw(st.integers(0, 6)))]
    entries += [(5, entry) for entry in range(data.draw(st.integers(0, 6)))]
    sizes = {entry: data.draw(st.integers(0, 3)) for entry in entries}
    acked: set[Id] = set()
    waiting: dict[int, Id] = {}
    for ledger, entry in entries:
        size = sizes[ledger, entry]
        if not size:
            continue
        for index in range(size):
            position = held.arrive(MessageId(ledger, entry, index if size > 1 else -1))
            waiting[position] = Id(ledger, entry, index)
        settled = data.draw(st.sets(st.sampled_from(sorted(waiting)))) if waiting else set()
        floor = min(set(waiting) - settled, default=held.next)
        taken = held.take(Commit(floor, tuple(Run(one, one + 1) for one in sorted(settled) if one > floor)))
        told = {Id(id_.ledger_id(), id_.entry_id(), max(0, id_.batch_index())) for id_ in taken.messages}
        if taken.upto is not None:
            spoken_for = {entry for entry in entries if entry <= taken.upto}
            assert all(sizes[entry] for entry in spoken_for)
            told |= {Id(*entry, index) for entry in spoken_for for index in range(sizes[entry])}
        done = {waiting.pop(one) for one in [*waiting] if one < floor or one in settled}
        # All that is settled is acked, and nothing else.
        assert done <= told | acked
        assert told <= done | acked
        acked |= told
        if data.draw(st.booleans()):
            held.acked_before(pack(*_first_unacked(entries, sizes, acked)))


def _first_unacked(entries: Iterable[tuple[int, int]], sizes: dict[tuple[int, int], int], acked: set[Id]) -> Any:
    """As the broker knows it; entries that are withheld are not acked."""
    for entry in entries:
        if not sizes[entry] or any(Id(*entry, index) not in acked for index in range(sizes[entry])):
            return entry
    return 9, 0


def test_a_lane_acks_so() -> None:
    async def body() -> None:
        at = bench(exclusive=True)
        positions = await at.arrives(MessageId(0, 0), MessageId(0, 2), MessageId(0, 3))
        await at.lane.ack(Commit(positions[-1]))
        cumulative, single = at.consumer.told
        assert isinstance(cumulative, tuple)
        assert (cumulative[0], str(cumulative[1])) == ("all before", "(0,0,-1,-1)")
        assert single == MessageId(0, 2)
        await at.lane.close()

    asyncio.run(body())


@dataclass
class Told:
    """An admin API that says where the cursor of the group is, and how large its backlog."""

    cursor: int = pack(4, 1)
    backlog: int = 1
    standings: int = 0
    meanwhile: list[Any] = field(default_factory=list)

    async def subscribed(self, name: str, group: str) -> Any:
        return SimpleNamespace(backlog=self.backlog, deadlocks=frozenset())

    async def standing(self, name: str) -> Standing:
        self.standings += 1
        for happens in self.meanwhile:
            await happens()
        return Standing(0, (4, 9), {"group": self.cursor})


class Consumer(FakeConsumer):
    def get_last_message_id(self) -> MessageId:
        return MessageId(4, 9)


async def arrived(source: PulsarSource, lane: PulsarLane, *ids: MessageId) -> None:
    """They lie ready."""
    consumer: Any = lane._consumer
    consumer.sends(*ids)
    async with asyncio.timeout(10):
        while lane.ready < len(ids):
            source._wake.clear()
            await source._wake.wait()


def test_the_broker_is_asked_only_while_there_are_gaps_and_says_so_in_the_status_when_one_stays() -> None:
    async def body() -> None:
        admin, consumer = Told(), Consumer()
        source = source_on(FakeOpening(consumer), exclusive=True, admin=admin)
        await source._discover()
        lane = source._lanes[Lane("orders", 0)]
        await source._measure()
        assert not admin.standings
        await arrived(source, lane, MessageId(4, 0), MessageId(4, 2))
        await source._measure()
        await source._measure()
        # It is in hand, and the broker waits for it.
        assert not source._told.get("withheld")
        await lane.ack(Commit(lane.held.next))
        await source._measure()
        await source._measure()
        assert "orders/0 has a message at 4:1 that does not come" in source._told["withheld"]
        admin.cursor = pack(4, 3)
        await source._measure()
        assert source._told["withheld"] == ""
        assert not lane.held.has_gaps
        asked = admin.standings
        await source._measure()
        assert admin.standings == asked
        await source.close()

    asyncio.run(body())


def test_what_the_broker_says_of_before_a_seek_does_not_count() -> None:
    async def body() -> None:
        admin, consumer = Told(cursor=pack(4, 9)), Consumer()
        source = source_on(FakeOpening(consumer), exclusive=True, admin=admin)
        await source._discover()
        lane = source._lanes[Lane("orders", 0)]
        await arrived(source, lane, MessageId(4, 2))

        async def seek() -> None:
            await lane.seek(pack(4, 0), at_end=False)
            await arrived(source, lane, MessageId(4, 2))

        admin.meanwhile.append(seek)
        await source._measure()
        assert lane.held.has_gaps
        await source.close()

    asyncio.run(body())


@dataclass
class Suspect:
    lane: Lane = Lane("orders", 0)
    name: str = "orders-partition-0"
    held: Held = field(default_factory=joined)
    exclusive: bool = True


def test_a_gap_whose_message_is_in_hand_is_no_trouble() -> None:
    withheld, lane = Withheld(), Suspect()
    arrive(lane.held, 0)
    lane.held.take(Commit(lane.held.next))
    # A new ledger: the broker waits for its first entry, a batch of which one message is in hand.
    lane.held.arrive(MessageId(7, 0, 0))
    lane.held.arrive(MessageId(7, 0, 1))
    lane.held.take(Commit(pack(7, 0, 1)))
    for _ in range(3):
        withheld.look(lane, pack(4, 1))
    assert withheld.trouble([lane.lane]) == ""
    lane.held.take(Commit(lane.held.next))
    withheld.look(lane, pack(4, 1))
    withheld.look(lane, pack(4, 1))
    assert "4:1" in withheld.trouble([lane.lane])
    assert withheld.trouble([]) == ""

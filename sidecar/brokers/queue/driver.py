"""The driver protocol: what the mechanism of this package needs of a broker with handles.

A queue broker gives a *handle* with each message (a delivery tag, a receipt, the id of an entry, a leased row) and
takes acks by handle. A driver translates that, and nothing else, to three objects:

    Driver      one configured broker: topics, publishing, depth. Made once
    Receiver    what one group receives from one lane, and the handles that it gave out. Made anew when they are void
    Received    one message with its handle

Everything around it is the mechanism's: positions, who holds what and for how long, when to renew, retries and backoff,
flow control, epochs, lanes and routing, memory.

**Calls.** All come from one event loop. A library that blocks runs in a thread inside the driver and hands over
finished values. On one receiver, a `receive`, an `ack`, a `renew` and a `give_back` may be under way at the same time,
but never two of a kind. **No call is ever cancelled**, except a `receive` that does not end at a `close`: so an answer
is never lost half-way, and a driver needs no shield of its own. In return each call but `receive` ends within the
configured timeout of the broker, with `Unavailable` if there was no answer. A driver never retries what its caller
would notice.

**Errors**, wherever they are raised:

    Unavailable       a retry may help, and all handles are still good. The answer may have been lost: the message may
                      have been written, acked, renewed or returned all the same
    HandlesLost       a retry needs a new receiver: every handle of this one is void (its channel, link or session is
                      gone). The broker delivers again what they stood for
    OutOfRoom         the broker is full; receiving and acks go on
    NotFound          no such topic, queue or group
    Refused, TooLarge a person must change something

A driver connects when it is first asked for something, and again after a connection was lost. It must never use a
handle on another channel, link or session than the one that it came from, if the broker counts them by that: it raises
`HandlesLost` instead. Where handles outlive a connection (an entry id, a receipt, a row), it reconnects and says
nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from sidecar.model.errors import Refused, Unavailable
from sidecar.model.records import Header, Lane, Message, Start

#: what the broker gives with a message to settle it by. Opaque to the mechanism: it only keeps it and gives it back
H = TypeVar("H")


class HandlesLost(Unavailable):
    """The handles that a receiver has given out are void, and it gives out no more."""


class Received(NamedTuple, Generic[H]):
    """One message as it was received, in the terms of a record. What a broker cannot carry as it is (a null value, a
    header that is not a text) the driver marks in `publish` and restores here."""

    handle: H
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    #: milliseconds since 1970: what the publisher said, or when the broker got it; 0: not known
    timestamp_ms: int = 0
    #: what identifies the message among all of its queue: the same at each delivery, for everybody, and after restarts;
    #: printable ASCII. Empty if the broker has nothing like it. Record ids are made from it
    ref: bytes = b""
    #: the broker's own number of the message in its queue, if it has one that ascends as messages are published, and is
    #: the same at each delivery (a sequence, an id of a row), with `Driver.numbered`. -1: none
    number: int = -1
    #: earlier deliveries, if the broker counts them: for its limit of them. They are no attempts, since most brokers
    #: count those that no worker saw
    delivered_before: int = 0
    #: somebody may have had it before. False only if it is certain that nobody had. Without the trait
    #: `tells_first_deliveries` the mechanism flags everything, whatever this says
    possibly_processed: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker does to a message by itself, as far as it can be read. The mechanism acts before it does."""

    #: seconds for which a message may be held, however often it is renewed (a `consumer_timeout`)
    hold: float = inf
    #: the broker drops or diverts a message at its next delivery once it was delivered so often; 0: never
    deliveries: int = 0


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is in a queue, as the broker tells it. -1: it does not."""

    #: messages that wait to be delivered
    waiting: int = -1
    #: messages that consumers of the group hold: all of them, not only this sidecar
    held: int = -1
    #: seconds for which the first of those that wait has waited
    oldest: float = -1.0


class Receiver(ABC, Generic[H]):
    """What one group receives from one lane. Made by `Driver.receiver`.

    Its handles are good until they are acked or given back, until they were not renewed for too long, or until any of
    its calls has raised `HandlesLost`.
    """

    #: seconds after which a held message must be renewed: a third of the time after which the broker would give it to
    #: others. None: it is held for as long as the receiver lives
    renew_every: float | None = None
    limits: Limits = Limits()
    #: the group was created by this receiver, so nothing of the lane was delivered to it before
    first: bool = False
    #: what an operator should know, by kind; an empty text says that it is over. Read after each `receive` and `depth`:
    #: a limit that can lose messages, a policy that removes them, a setting that makes acks come back
    troubles: Mapping[str, str] = MappingProxyType({})
    #: the group is the only one that ever reads this lane (its retry topic): what is acked may be deleted, where the
    #: broker would keep it. Set by the mechanism
    sole_reader: bool = False
    #: messages of which is known that the broker removed them before the group settled them, since it was opened
    lost: int = 0

    @abstractmethod
    async def receive(self, records: int, size: int, timeout: float) -> Sequence[Received[H]]:
        """The next messages: at most `records`. In the order in which the broker gives them; those of a receiver that
        was here before (the pending list of the same consumer name) come first.

        Returns as soon as there is anything; after `timeout` seconds at the latest, with nothing. A driver whose broker
        pushes never has more credit open than the last call asked for, and what arrives between two calls waits in it.

        `size` is what may be in memory of it, in bytes: one message may exceed it, but no second one may follow. A
        broker whose credit counts bytes gets `size`. Where it counts messages, `records` was sized by the largest
        message of late, but messages may have grown: a driver that reads a socket stops reading it once `size` is
        exceeded and goes on in the next call; one that gets a whole answer limits what can be in one.

        What arrived and is not returned yet stays for the next call; what must not be delivered any more by then (its
        lease is over) is dropped.
        """

    async def pause(self) -> None:
        """No `receive` follows for a while. Takes open credit back, so that others get what waits; a `receive` that
        waits returns at once, if that loses nothing. The next `receive` ends it. For brokers that push."""

    async def stop(self) -> None:
        """No `receive` follows any more. One that waits returns at once, if that loses nothing."""
        await self.pause()

    @abstractmethod
    async def ack(self, handles: Sequence[H], cumulative: int) -> Sequence[int]:
        """Settles messages for good. Returns once the broker has it, or will have it if only this connection lives on:
        where acks are not answered, a question that is answered after them on the same connection proves it.

        `handles` are in the order of `receive`. The first `cumulative` of them, and everything that was received before
        the last of these, is settled: a broker with cumulative acks may use that.

        Returns the indexes of handles that were no longer ours: their messages come, or came, again. After
        `Unavailable` the same handles are acked again, with others: acking twice must be harmless.
        """

    @abstractmethod
    async def give_back(self, handles: Sequence[H], delay: float) -> None:
        """Returns messages to the broker unsettled, for whoever asks next, after `delay` seconds. `delay` is 0, or at
        most `Driver.longest_return_delay`. Handles that are no longer ours are ignored."""

    async def renew(self, handles: Sequence[H]) -> Sequence[H | None]:
        """Keeps messages for as long again. Returns for each the handle to use from now on, in the same order, or None
        if it is no longer ours. Called only if `renew_every` says so, for all that are due together."""
        return handles

    @abstractmethod
    async def close(self) -> None:
        """Ends it. What it still holds goes back at the broker's own pace. Frees everything; never raises."""


class Driver(ABC, Generic[H]):
    """One configured broker. Nothing of it is used before `open`."""

    #: for the status: versions, protocols, addresses. No secrets. Set when it is made; `open` may replace it
    facts: dict[str, str]
    #: most messages that one `receive` may be asked for
    most_records: int = 500
    #: each message has a `Received.number`
    numbered: bool = False
    #: seconds for which the broker holds a message back that is published with a `deliver_after`; 0: it cannot
    longest_delay: float = 0.0
    #: seconds for which it holds a message back that is given back with a delay; 0: it cannot
    longest_return_delay: float = 0.0

    @abstractmethod
    async def open(self) -> None:
        """Checks what can be checked without a topic. May connect. Called again after `Unavailable`."""

    @abstractmethod
    async def lanes(self, topic: str) -> int:
        """How many lanes a topic has: lane n is its queue number n. Raises `NotFound`.

        Lane 0 is the queue with the topic's own name, lane n the one of `queue_name`; `count_lanes` asks for one after
        the other. A broker whose topics have parts of their own may count these instead, and one whose topics are made
        elsewhere may say 1.
        """

    @abstractmethod
    async def ensure(self, topic: str, lanes: int) -> None:
        """Creates the queues of a topic that are missing, if it has none; they must outlive the broker and all groups.
        An existing topic stays as it is. Raises `Refused` if somebody else must create it: the text says how."""

    @abstractmethod
    async def receiver(self, lane: Lane, group: str, start: Start) -> Receiver[H]:
        """Begins to receive. A group that the broker does not know is created, at `start`, and stays until it is
        deleted. Raises `NotFound`."""

    @abstractmethod
    async def publish(self, lane: Lane, messages: Sequence[Message]) -> Sequence[int]:
        """Returns the number of each (`Received.number`; -1: none) once the broker has all of them durably and nobody
        can say that they went nowhere. In order, if only one call is under way. `Message.deliver_after` is at most
        `longest_delay`. Raises `NotFound`, `TooLarge`, `Refused`, `OutOfRoom`, `Unavailable`; then some of them may
        have been written."""

    async def depth(self, lane: Lane, group: str) -> Depth:
        """How much is in the queue. An empty group: nobody's in particular. Raises `NotFound`."""
        return Depth()

    def browse(self, lane: Lane, group: str, size: int) -> AsyncIterator[Sequence[Received[H]]]:
        """What is in a queue, from the oldest on, without consuming it, in pieces of about `size` bytes: for dead
        letters. Handles are not used. Ends at the last that was there when it began; may hold others up meanwhile.
        Raises `NotFound`. For drivers with the trait `browses`."""
        raise Refused("This broker cannot show what is in a queue.")

    @abstractmethod
    async def close(self) -> None:
        """Waits for publishes that are under way. Receivers were closed before. Never raises."""

"""What the checker says is broken."""

from enum import StrEnum


class Promise(StrEnum):
    """The promises of docs/semantics.md by number, and two rules besides."""

    NOTHING_IS_LOST = "1 nothing is lost"
    NACK_REPLAYS = "2 a nack replays"
    TRUTHFUL = "3 a settle is answered truthfully"
    ORDER = "4 order as chosen"
    SLOW_RECORD = "5 one slow record holds up nobody else"
    ANY_WORKER = "6 workers are not bound to lanes"
    MEMORY = "7 memory is bounded"
    REBALANCE = "8 rebalance is safe"
    RESTART = "9 a restart forgets little"
    DRAIN = "10 drain is orderly"
    POISON = "11 poison is isolated"
    OUTAGE = "12 an outage is not poison"
    CREDIT = "credit is a ceiling"
    PROTOCOL = "the protocol"


#: the numbered ones
PROMISES = tuple(promise for promise in Promise if promise[0].isdigit())

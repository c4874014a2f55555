"""What an operator should do. Pure: facts to sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sidecar.observability.status import SubscriptionState
from sidecar.server.status_page.facts import Facts, SubscriptionFacts
from sidecar.server.status_page.format import count, duration
from sidecar.settings import SubscriptionMode

_SIDE_TOPIC = "Check the broker and the rights to that topic. The commit waits, and nothing is lost."
#: by kind of trouble; `{name}` stands for the subscription
_REMEDIES = {
    "outage": "Fix what the handler depends on. Probes go on by themselves; `offramp resume {name}` probes at once.",
    "commit": "Check the broker. Deliveries go on up to the window, and nothing is lost.",
    "parking": _SIDE_TOPIC,
    "dead_letters": _SIDE_TOPIC,
    "paused": "Fix the cause, then `offramp resume {name}`.",
    "oversized": "Connect a client that takes larger messages (`max_message_bytes`).",
    "push": "Start the app, or correct `push` of the subscription. The sidecar keeps trying, and nothing is counted.",
    "push_reply": "Check the broker and `push.reply_topic`. The batch is acked once its reply is published.",
    "broker": "Check the broker, its address and the rights of this client. The sidecar keeps trying.",
    "bug": "Restart the sidecar, and report the traceback that is in its log.",
}
#: about trouble of the sidecar itself: with its certificate or its tokens
_FILES = "Replace the file by a valid one: it is reloaded by itself. Until then the previous content stays in use."
_OTHER_TROUBLE = "Check the broker; the log says since when."
#: by state, for a subscription without trouble
_STATES = {
    SubscriptionState.STARTING: "Waits for the broker; nothing to do unless this lasts.",
    SubscriptionState.RUNNING: "Nothing to do.",
    SubscriptionState.PAUSED: "Resume with `offramp resume {name}`.",
    SubscriptionState.PROBING: "Nothing to do yet: batches failed in a row, and probes tell whether the handler does.",
    SubscriptionState.DRAINING: "Nothing to do: workers settle what they hold, then the sidecar exits.",
    SubscriptionState.FAILED: "The broker refused: fix what the trouble says, and the sidecar goes on.",
}
#: seconds that a record may be unsettled before the page mentions it
_LONG_UNSETTLED = 300.0
#: the same for a record that keeps its lane from being fetched
_LONG_BLOCKING = 10.0


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that is wrong, and what to do about it. What stands between backticks is to be typed."""

    about: str
    trouble: str
    todo: str


def all_advice(facts: Facts) -> list[Advice]:
    """Everything that is wrong, for the top of the page."""
    found = [Advice("sidecar", trouble, _FILES) for trouble in facts.status.trouble]
    found += [
        Advice(f"broker {broker.name}", broker.trouble, _REMEDIES["broker"])
        for broker in facts.status.brokers
        if broker.trouble
    ]
    return found + [
        Advice(one.status.name, trouble, _remedy(kind, one.status.name))
        for one in facts.subscriptions
        for kind, trouble in one.troubles
    ]


def todo(subscription: SubscriptionFacts) -> str:
    """One sentence on what to do about a subscription."""
    status = subscription.status
    if subscription.troubles:
        return _remedy(subscription.troubles[0][0], status.name)
    if status.state is SubscriptionState.RUNNING:
        return hint(subscription) or _STATES[status.state]
    return _named(_STATES[status.state], status.name)


def hint(subscription: SubscriptionFacts) -> str:
    """What is worth a look although nothing is wrong; empty if nothing is."""
    return next(_hints(subscription), "")


def _remedy(kind: str, name: str) -> str:
    return _named(_REMEDIES.get(kind, _OTHER_TROUBLE), name)


def _named(sentence: str, name: str) -> str:
    # A backtick in a name must not end what is to be typed.
    return sentence.replace("{name}", name.replace("`", "'"))


def _hints(subscription: SubscriptionFacts) -> Iterator[str]:
    status = subscription.status
    waiting = lag(subscription)
    if status.mode == SubscriptionMode.RANGES:
        return
    if not status.sessions:
        yield (
            f"No worker is connected, and {count(waiting)} records wait: start one."
            if waiting > 0
            else "No worker is connected; nothing waits for one."
        )
    for lane in status.lanes:
        if lane.held_by.startswith("window") and lane.oldest > _LONG_BLOCKING:
            who = f", which {lane.oldest_with} holds" if lane.oldest_with else ""
            yield (
                f"Lane {lane.topic}/{lane.lane} has been delivered as far as its window allows: it waits for record "
                f"{lane.oldest_position}, unsettled for {duration(lane.oldest)}{who}."
            )
    if oldest(subscription) > _LONG_UNSETTLED and status.leases:
        yield (
            f"A record has been unsettled for {duration(oldest(subscription))}: the table of lanes says which, and who "
            "holds it."
        )


def oldest(subscription: SubscriptionFacts) -> float:
    """Seconds since the oldest unsettled record was fetched. Parked records do not count: they are meant to wait."""
    return max((lane.oldest for lane in subscription.status.lanes if not lane.parked), default=0.0)


def lag(subscription: SubscriptionFacts) -> int:
    """Records that are left to do, without parked ones; -1 if it is known of no lane."""
    known: Sequence[int] = [lane.lag for lane in subscription.status.lanes if lane.lag >= 0 and not lane.parked]
    return sum(known) if known or not subscription.status.lanes else -1

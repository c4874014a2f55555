"""
What a running sidecar is doing: trouble first, then each subscription with its lanes and its workers.

  offramp status
  offramp status orders
  offramp status --json | jq '.subscriptions[].would_be_replayed'
"""

import argparse
import sys

from offramp.v1 import admin_pb2
from sidecar.cli.connection import TIMEOUT, connect
from sidecar.cli.messages import enum_word, plain, to_json
from sidecar.cli.parser import add_address
from sidecar.model.text import Ink, age, columns, plural, size

_INDENT = "  "
#: as in the configuration
RANGES = "ranges"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION", nargs="?", default="", help="only this one")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        request = admin_pb2.GetStatusRequest(subscription=args.subscription)
        status = sidecar.admin.GetStatus(request, timeout=TIMEOUT).status
    if args.json:
        print(to_json(plain(status)))
    else:
        print("\n".join(report(status, sidecar.address, Ink(sys.stdout.isatty()))))
    return 0


def state_word(subscription: admin_pb2.SubscriptionStatus) -> str:
    return enum_word(admin_pb2.SubscriptionState.DESCRIPTOR, subscription.state)


def troubles(status: admin_pb2.Status) -> list[str]:
    """What an operator should look at, one sentence each."""
    found = [*status.trouble]
    found += [f"broker {broker.name}: {broker.trouble}" for broker in status.brokers if broker.trouble]
    return found + [f"{s.name}: {trouble}" for s in status.subscriptions for trouble in s.trouble]


def lanes_shown(subscription: admin_pb2.SubscriptionStatus) -> tuple[list[admin_pb2.LaneStatus], str]:
    """The lanes worth a line, and a word on the others: a retry topic is empty most of the time."""
    shown = [lane for lane in subscription.lanes if not lane.parked or _has_something(lane)]
    left_out = len(subscription.lanes) - len(shown)
    return shown, f"and {plural(left_out, 'empty lane')} of the retry topic" if left_out else ""


def _has_something(lane: admin_pb2.LaneStatus) -> bool:
    return bool(lane.lag or lane.ready_records or lane.in_flight_records or lane.waiting_records or lane.held_by)


def report(status: admin_pb2.Status, address: str, ink: Ink) -> list[str]:
    """The status for people, as lines."""
    draining = ", draining" if status.draining else ""
    lines = [f"offramp {status.version} at {address}, up {age(status.uptime_ms)}{draining}"]
    lines += [ink.red(f"! {trouble}") for trouble in troubles(status)]
    for subscription in status.subscriptions:
        lines += ["", *_subscription(subscription, ink)]
    if not status.subscriptions:
        lines += ["", "no subscriptions"]
    for broker in status.brokers:
        facts = "".join(f", {name} {value}" for name, value in sorted(broker.facts.items()))
        lines += ["", f"broker {broker.name}: {broker.type}{facts}"]
    return lines


def how_read(s: admin_pb2.SubscriptionStatus) -> str:
    return "by ranges" if s.mode == RANGES else f"order {s.order}"


def reader_text(s: admin_pb2.SubscriptionStatus) -> str:
    """Who reads ranges, in a few words."""
    if not s.HasField("reader"):
        return "none has attached yet"
    return f"{s.reader.name or 'one without a name'}, attached {age(s.reader.age_ms)} ago"


def _subscription(s: admin_pb2.SubscriptionStatus, ink: Ink) -> list[str]:
    state = state_word(s)
    shown = ink.green(state) if state == "running" else ink.yellow(state)
    lines = [f"{ink.bold(s.name)}: {shown}; {', '.join(s.topics)} on {s.broker}, group {s.group}, {how_read(s)}"]
    lines += _read_by_ranges(s) if s.mode == RANGES else _leased(s)
    counted = [f"{field.name} {value:,}" for field, value in s.counters.ListFields()]
    lines += ["", _INDENT + "since the start: " + (", ".join(counted).replace("_", " ") or "nothing")]
    return lines


def _read_by_ranges(s: admin_pb2.SubscriptionStatus) -> list[str]:
    lines = [f"{_INDENT}reader: {reader_text(s)}" + (f", token {s.reader.token}" if s.HasField("reader") else ""), ""]
    rows = [("lane", "committed", "end", "lag")]
    for lane in s.lanes:
        name = f"{lane.topic}/{lane.lane}"
        rows.append((name, str(lane.committed) if lane.committed >= 0 else "none", _known(lane.end), _known(lane.lag)))
    return lines + [_INDENT + line for line in columns(rows, right=range(1, 4))]


def _leased(s: admin_pb2.SubscriptionStatus) -> list[str]:
    facts = [
        f"in flight: {plural(s.in_flight_records, 'record')} in {plural(s.leases, 'lease')}",
        f"waiting for a retry: {s.waiting_records:,}",
        f"oldest unsettled: {age(s.oldest_unsettled_ms)}",
        f"would be replayed: {s.would_be_replayed:,}",
        f"in memory: {s.buffered_records:,}, {size(s.buffered_bytes)} of {size(s.buffered_bytes_limit)}",
    ]
    if s.concurrency_limit:
        facts.append(f"at most in flight: {plural(s.concurrency_limit, 'batch', 'batches')}")
    lines = [_INDENT + fact for fact in facts]
    if s.lanes:
        lines += ["", *(_INDENT + line for line in _lanes(s))]
    return [*lines, "", *(_INDENT + line for line in _sessions(s))]


def _lanes(s: admin_pb2.SubscriptionStatus) -> list[str]:
    rows = [("lane", "committed", "end", "lag", "ready", "in flight", "waiting", "settled ahead", "oldest", "held by")]
    lanes, others = lanes_shown(s)
    for lane in lanes:
        held = lane.held_by or ("paused" if lane.paused else "")
        rows.append(
            (
                f"{lane.topic}/{lane.lane}" + (" (retry)" if lane.parked else ""),
                str(lane.committed),
                _known(lane.end),
                _known(lane.lag),
                str(lane.ready_records),
                str(lane.in_flight_records),
                str(lane.waiting_records),
                str(lane.settled_beyond),
                _oldest(lane),
                held,
            )
        )
    return columns(rows, right=range(1, 8)) + ([others] if others else [])


def _sessions(s: admin_pb2.SubscriptionStatus) -> list[str]:
    if not s.sessions:
        return ["no worker is connected"]
    rows = [("worker", "language", "pid", "leases", "in flight", "held for", "credit", "age")]
    for session in s.sessions:
        rows.append(
            (
                session.name or session.session.hex()[:8],
                session.language,
                str(session.pid or "-"),
                str(session.leases),
                str(session.in_flight_records),
                age(session.oldest_lease_ms) if session.leases else "-",
                str(session.credit_batches),
                age(session.age_ms),
            )
        )
    return columns(rows, right=range(2, 8))


def _oldest(lane: admin_pb2.LaneStatus) -> str:
    """The record that the commit waits for: how old, where, and who has it."""
    if lane.oldest_position < 0 or not lane.oldest_ms:
        return "-"
    with_whom = f" with {lane.oldest_with}" if lane.oldest_with else ""
    return f"{age(lane.oldest_ms)} at {lane.oldest_position}{with_whom}"


def _known(number: int) -> str:
    return str(number) if number >= 0 else "?"

"""
List the dead letters of a subscription, oldest first, or show one of them.

  offramp dead-letters orders
  offramp dead-letters orders --reason timeout --since 2025-06-01T12:00:00Z
  offramp dead-letters orders --id orders/3/1200
  offramp dead-letters orders --json | jq -r .id
"""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from offramp.v1 import admin_pb2
from sidecar.cli.cleaned import cleaned
from sidecar.cli.connection import CALL_TIMEOUT, Stubs, connect
from sidecar.cli.dead_letter_choice import add_filter, read_filter
from sidecar.cli.json_lines import payload, to_json
from sidecar.cli.parser import add_address, count
from sidecar.model.errors import OfframpError
from sidecar.model.text import clean, columns, fit


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subscription", metavar="SUBSCRIPTION")
    parser.add_argument("--id", default="", help="show this dead letter with its key, value and headers")
    parser.add_argument("--limit", type=count, default=100, metavar="N", help="at most N (default: 100)")
    parser.add_argument("--page", default="", metavar="PAGE", help="continue the listing that ended with this")
    add_filter(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, with payloads")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    with connect(args) as sidecar:
        page, found = "", []
        for response in _pages(sidecar, args):
            page = response.next_page
            for entry in response.dead_letters:
                if args.json:
                    sys.stdout.write(to_json(_as_json(entry)) + "\n")
                else:
                    found.append(cleaned(entry))
    if page:
        more = f"(there are more: --limit shows them at once, --page {clean(page)} the next ones)"
    if args.json:
        if page:
            print(more, file=sys.stderr)
        return 0
    if args.id and not found:
        raise OfframpError(f"{args.subscription} has no dead letter {args.id}")
    if not found:
        print(f"{args.subscription} has no dead letters")
    elif args.id:
        print("\n".join(_details(found[0])))
    else:
        print("\n".join(_table(found)))
        if page:
            print(more)
    return 0


def _pages(sidecar: Stubs, args: argparse.Namespace) -> Iterator[admin_pb2.ListDeadLettersResponse]:
    request = admin_pb2.ListDeadLettersRequest(
        subscription=args.subscription,
        limit=args.limit,
        id=args.id,
        without_payload=not (args.json or args.id),
        filter=read_filter(args),
        page=args.page,
    )
    yield from sidecar.admin.ListDeadLetters(request, timeout=10 * CALL_TIMEOUT)


def _table(entries: list[admin_pb2.DeadLetter]) -> list[str]:
    rows = [("id", "when", "attempts", "worker", "reason")]
    for entry in entries:
        reason = f"(redriven) {entry.reason}" if entry.redriven else entry.reason
        rows.append((entry.id, _when(entry), str(entry.attempts), entry.worker or "-", fit(reason, 80)))
    return columns(rows, right=(2,))


def _details(entry: admin_pb2.DeadLetter) -> list[str]:
    content = payload(entry.record)
    rows = [
        ("id", entry.id),
        ("when", _when(entry)),
        ("attempts", str(entry.attempts)),
        ("worker", entry.worker or "-"),
        ("reason", fit(entry.reason, 1024)),
    ]
    rows += [(name, to_json(value)) for name, value in content.items() if name != "headers"]
    rows += [("header", to_json(header)) for header in content["headers"]]
    return columns(rows)


def _as_json(entry: admin_pb2.DeadLetter) -> dict[str, object]:
    return {
        "id": entry.id,
        "topic": entry.topic,
        "lane": entry.lane,
        "position": entry.position,
        "reason": entry.reason,
        "attempts": entry.attempts,
        "worker": entry.worker,
        "dead_lettered_ms": entry.dead_lettered_ms,
        "redriven": entry.redriven,
        **payload(entry.record),
    }


def _when(entry: admin_pb2.DeadLetter) -> str:
    return datetime.fromtimestamp(entry.dead_lettered_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

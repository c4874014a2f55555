"""Which dead letters are meant: arguments of the commands that list them, send them back or delete them."""

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

from offramp.v1 import admin_pb2
from sidecar.cli.parser import timestamp
from sidecar.model.errors import OfframpError

Step = TypeVar("Step")


def add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="only those with this text in their reason")
    parser.add_argument("--since", type=timestamp, default=0, metavar="TIME", help="only those that died then or later")
    parser.add_argument("--until", type=timestamp, default=0, metavar="TIME", help="only those that died before then")


def add_choice(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", dest="ids", action="append", metavar="ID", help="this dead letter; may be repeated")
    which.add_argument("--all", action="store_true", help="every dead letter, or those that the options below choose")
    add_filter(parser)


def read_filter(args: argparse.Namespace) -> admin_pb2.DeadLetterFilter | None:
    if not (args.reason or args.since or args.until):
        return None
    return admin_pb2.DeadLetterFilter(reason=args.reason, since_ms=args.since, until_ms=args.until)


def watched(steps: Iterable[Step], text: Callable[[Step], str]) -> Step:
    """The last of the steps, of which there is at least one. Shows each on a terminal."""
    last = None
    on_terminal = sys.stderr.isatty()
    for last in steps:
        if on_terminal:
            sys.stderr.write(f"\r{text(last)}")
    if on_terminal:
        sys.stderr.write("\r\033[K")
    if last is None:
        raise OfframpError("the sidecar ended the call without an answer")
    return last


def check_found(args: argparse.Namespace, found: int) -> None:
    """Raises `OfframpError` if fewer were found than were named."""
    named = set(args.ids or ())
    if found < len(named):
        which = f"{args.ids[0]} is" if len(named) == 1 else f"of these ids {len(named) - found} are"
        raise OfframpError(f"{which} not among its dead letters; `offramp dead-letters` lists them")

"""Whether every order of the demo is accounted for, and how.

    python -m sidecar.cli.demo.checker FOLDER      a folder that `offramp demo --keep` left

The checker believes the broker's files and the journals of publishers and workers. It asks the sidecar nothing.

stock      what the broker has: orders, the cursors of the group, dead letters, the retry topic
books      what publishers and workers noted
accounts   the two compared
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from sidecar.cli.demo.accounts import Accounts, Way, reckon
from sidecar.cli.demo.books import read_books
from sidecar.cli.demo.plan import Folder, Plan
from sidecar.cli.demo.stock import take_stock
from sidecar.model.text import Ink, plural

#: problems that are shown
_MOST_SHOWN = 10


def check(folder: Folder) -> Accounts:
    """Raises `OfframpError` if the broker cannot be read."""
    return reckon(Plan.load(folder), asyncio.run(take_stock(folder)), read_books(folder.journals))


def verdict(accounts: Accounts, ink: Ink) -> Iterator[str]:
    """For people, as lines."""
    yield _row(" ", accounts.published, "orders were published")
    yield _row("=", sum(accounts.acked.values()), "acked")
    for way in Way:
        if accounts.acked[way]:
            yield _part(accounts.acked[way], way)
    yield _row("+", accounts.rejected + accounts.given_up, "dead-lettered")
    yield _part(accounts.rejected, "rejected by a worker")
    yield _part(accounts.given_up, "torn: failed alone until no attempt was left")
    if accounts.parked:
        yield _row("+", accounts.parked, "parked, to come back later")
    line = _row("+", accounts.unaccounted, "unaccounted for")
    yield ink.red(line) if accounts.unaccounted else line
    yield ""
    yield from _repeated(accounts)
    yield ""
    if accounts.balanced:
        yield ink.green(ink.bold("PASS")) + "  Every order is accounted for."
    else:
        yield ink.red(ink.bold("FAIL")) + f"  {_failure(accounts)}"
    for problem in accounts.problems[:_MOST_SHOWN]:
        yield f"  {problem}"
    if len(accounts.problems) > _MOST_SHOWN:
        yield f"  and {len(accounts.problems) - _MOST_SHOWN:,} more"


def _repeated(accounts: Accounts) -> Iterator[str]:
    if not accounts.acked_twice:
        yield "No order was acked twice."
    if accounts.excused:
        yield f"{plural(accounts.excused, 'order was', 'orders were')} acked twice, as may be:"
        yield f"{', '.join(accounts.died)} noted the ack, and was killed before it could say it."
    if accounts.acked_twice > accounts.excused:
        needless = accounts.acked_twice - accounts.excused
        yield f"{plural(needless, 'order was', 'orders were')} acked twice without need."


def _failure(accounts: Accounts) -> str:
    if accounts.problems:
        orders = sum(problem.records for problem in accounts.problems)
        return f"{plural(orders, 'order is', 'orders are')} not as they should be:"
    return f"{accounts.expected:,} different orders should be there, and {accounts.different:,} are."


def _row(sign: str, number: int, words: str) -> str:
    return f" {sign} {number:>9,}  {words}"


def _part(number: int, words: str) -> str:
    return f"{'':14}{number:>9,}  {words}"


if __name__ == "__main__":
    found = check(Folder(Path(sys.argv[1])))
    print("\n".join(verdict(found, Ink(sys.stdout.isatty()))))
    sys.exit(not found.balanced)

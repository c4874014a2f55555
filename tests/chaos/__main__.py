"""Chaos by hand: see `tests.chaos`."""

import argparse
import sys
from pathlib import Path

from tests.chaos.campaign import SECONDS, Campaign, Wish, a_seed, say
from tests.chaos.checker import checker, history
from tests.chaos.plan import BrokerKind
from tests.servers.tools import Missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Faults by a seed, and a checker.")
    parser.add_argument("--seed", type=int, default=0, help="fixes the faults; one is made up if there is none")
    parser.add_argument("--broker", choices=[*BrokerKind], help="only this one; default: all in turn")
    parser.add_argument("--rounds", type=int, default=0, help="how many; without --seconds, however long they take")
    parser.add_argument("--seconds", type=float, help=f"no round begins later ({SECONDS:g}, unless --rounds is given)")
    parser.add_argument("--round", type=int, default=0, help="this one alone")
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    parser.add_argument("--folder", type=Path, default=Path(".chaos"), help="where histories are left")
    parser.add_argument("--check", type=Path, help="only judge the history in this folder again")
    told = parser.parse_args()
    if told.check is not None:
        return check(told.check)
    seconds = told.seconds if told.seconds is not None else (0.0 if told.rounds or told.round else SECONDS)
    wish = Wish(
        told.seed or a_seed(),
        [BrokerKind(told.broker)] if told.broker else [*BrokerKind],
        rounds=1 if told.round else told.rounds,
        seconds=seconds,
        first=told.round or told.first,
        folder=told.folder,
    )
    try:
        return 1 if Campaign(wish).run() else 0
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2


def check(folder: Path) -> int:
    verdict = checker.check(history.read(folder))
    for line in verdict.lines():
        say(line)
    say(", ".join(f"{count:,} {what}" for what, count in verdict.counts.items()))
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())

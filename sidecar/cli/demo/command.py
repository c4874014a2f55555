"""
See Offramp work: a sidecar, workers in processes of their own, things that go wrong, and a verdict.

  offramp demo
  offramp demo --records 1000000 --workers 8
  offramp demo --keep        keep the folder: configuration, broker, what every process noted and printed

Everything happens in a temporary folder, over a unix socket. At the end a checker counts what the broker has on disk
and what the workers noted; the exit code is 0 only if every single record is accounted for.
"""

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from sidecar.cli.demo import checker
from sidecar.cli.demo.accounts import Accounts
from sidecar.cli.demo.audience import Audience, Terminal
from sidecar.cli.demo.plan import Folder, Plan
from sidecar.cli.demo.show import play
from sidecar.cli.parser import Parser, count

#: with less there is nothing to see
_LEAST_RECORDS = 10_000
_MOST_WORKERS = 32
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: list[str]) -> int:
    args = _parse(argv)
    plan = Plan.quick() if args.quick else Plan()
    plan = replace(plan, records=args.records or plan.records, workers=args.workers or plan.workers)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a bar shows question marks.
        sys.stdout.reconfigure(errors="replace")
    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    folder = _make_folder()
    keep = True
    try:
        accounts = _run(plan, folder)
        keep = args.keep or not accounts.balanced
        return 0 if accounts.balanced else 1
    except KeyboardInterrupt:
        keep = args.keep
        _say("Interrupted. All processes of the demo have ended.")
        raise
    finally:
        if keep:
            _say(f"Everything is kept in {folder.path}")
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


def _make_folder() -> Folder:
    """A temporary one, where its socket can be: the path of a unix socket has about a hundred bytes at the most."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="offramp-demo-")))
    if len(os.fsencode(folder.socket)) < 100:
        return folder
    folder.path.rmdir()
    return Folder(Path(tempfile.mkdtemp(prefix="offramp-demo-", dir="/tmp")))


def _run(plan: Plan, folder: Folder) -> Accounts:
    watched = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with (Terminal if watched else Audience)(plan) as audience:
        play(plan, folder, audience)
        audience.tell("The checker counts what is on disk and what publishers and workers noted.")
        accounts = checker.check(folder)
    print("", *checker.verdict(accounts, audience.ink), sep="\n", flush=True)
    return accounts


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="offramp demo", help_text=__doc__ or "")
    parser.add_argument("--records", type=count, metavar="N", help=f"orders to publish (default: {Plan().records:,})")
    parser.add_argument("--workers", type=count, metavar="N", help=f"worker processes (default: {Plan().workers})")
    parser.add_argument("--keep", action="store_true", help="keep the folder and say where it is")
    parser.add_argument("--quick", action="store_true", help="the same in small, in a few seconds")
    args = parser.parse_args(argv)
    if args.records and args.records < _LEAST_RECORDS:
        parser.error(f"--records: {args.records} is too few to see anything; it takes {_LEAST_RECORDS:,} or more")
    if args.workers and not 2 <= args.workers <= _MOST_WORKERS:
        parser.error(f"--workers: {args.workers} is not from 2 to {_MOST_WORKERS}: one is killed, others must be left")
    return args


def _interrupt(number: int, frame: object) -> None:
    """Whoever asks it to end gets what Ctrl-C gets: no process and no folder is left behind. Asking again, as a
    terminal does that is closed, must not disturb that."""
    for each in _ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    # The terminal may be what has ended.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)

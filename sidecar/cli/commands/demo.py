"""
Run a demo of Offramp: a sidecar on the embedded broker, worker processes, failures on purpose, and a check at the end.

  offramp demo
  offramp demo --records 1000000 --workers 8
  offramp demo --keep        keep the folder: configuration, broker, journals and output of every process

Everything happens in a temporary folder, over a unix socket. At the end an audit compares the files of the broker with
the journals of publishers and workers. The exit code is 0 only if every record is accounted for.
"""

import argparse
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sidecar.cli.parser import count
from sidecar.model.errors import OfframpError

#: with fewer, the demo ends before anything can be seen
_MIN_RECORDS = 10_000
_MAX_WORKERS = 32


def arguments(parser: argparse.ArgumentParser) -> None:
    defaults = _demo("plan").Plan()
    parser.add_argument(
        "--records", type=_records, metavar="N", help=f"orders to publish (default: {defaults.records:,})"
    )
    parser.add_argument("--workers", type=_workers, metavar="N", help=f"worker processes (default: {defaults.workers})")
    parser.add_argument("--keep", action="store_true", help="keep the folder and print its path")
    parser.add_argument("--quick", action="store_true", help="a small demo of a few seconds")


def run(args: argparse.Namespace) -> int:
    plans = _demo("plan").Plan
    plan = plans.quick() if args.quick else plans()
    plan = replace(plan, records=args.records or plan.records, workers=args.workers or plan.workers)
    code: int = _demo("runner").run(plan, keep=args.keep)
    return code


def _demo(module: str) -> Any:
    """A module of the demo. Raises `OfframpError` where the demo is not installed."""
    if find_spec("sidecar.cli.demo") is None:
        raise OfframpError(
            "the demo is not part of the container image; run `make demo` in a clone of the repository, "
            "or `offramp demo` where offramp-sidecar is installed with pip"
        )
    return import_module(f"sidecar.cli.demo.{module}")


def _records(text: str) -> int:
    records = count(text)
    if records < _MIN_RECORDS:
        raise argparse.ArgumentTypeError(f"{records} is too few to see anything; it takes {_MIN_RECORDS:,} or more")
    return records


def _workers(text: str) -> int:
    workers = count(text)
    if not 2 <= workers <= _MAX_WORKERS:
        raise argparse.ArgumentTypeError(
            f"{workers} is not from 2 to {_MAX_WORKERS}: one is killed, and others must remain"
        )
    return workers

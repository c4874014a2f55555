"""Fuzz by hand: see `tests.fuzz`."""

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="What no client should send.")
    parser.add_argument("--seed", type=int, default=0, help="fixes what is sent; one is made up if there is none")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long (120)")
    told = parser.parse_args()
    seed = told.seed or random.Random(os.urandom(8)).randrange(1, 1_000_000)
    print(f"fuzz: seed {seed}, {told.seconds:g} s", flush=True)
    is_watched = sys.stdout.isatty()

    def tell(text: str) -> None:
        if is_watched:
            print(f"\r\x1b[K{text}", end="", flush=True)

    # A path that a unix socket can have, wherever this is run.
    folder = Path(tempfile.mkdtemp(prefix="offramp-fuzz-"))
    outcome = run(folder, seed, told.seconds, tell)
    print(f"{chr(10) if is_watched else ''}{outcome.attacks} attacks; the control client: {outcome.control_client}")
    for what, count in sorted(outcome.responses.items()):
        print(f"  {count:6} {what}")
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    if not outcome.problems:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}: the log of the sidecar, and in `attacks` what was sent")
        print(f"again: make fuzz SEED={seed} SECONDS={told.seconds:g}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())

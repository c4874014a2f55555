"""`offramp demo`: the main job for real, in a temporary folder, with a verdict.

command                      what can be asked for
plan, orders                 what is done, and to what
worker, publisher, journal   the processes, and what they note
show, acts, cast, comeback   the whole of it, what happens, who does it
picture, frame, audience     what is seen of it
checker                      what came of it, by stock, books and accounts
"""

from importlib import import_module


def main(argv: list[str]) -> int:
    """Answers the exit code: 0 if every record is accounted for."""
    # Loaded here, because workers are modules of this package too and need none of it.
    code: int = import_module("sidecar.cli.demo.command").main(argv)
    return code

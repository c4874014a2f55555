"""How a runner speaks with the harness; see clients/SCENARIOS.md."""

import os
import sys
import traceback
from collections.abc import Callable, Mapping

SUBSCRIPTION = os.environ.get("SCENARIO_SUBSCRIPTION", "")
OTHER_SUBSCRIPTION = os.environ.get("SCENARIO_OTHER_SUBSCRIPTION", "")
REPLY_TOPIC = os.environ.get("SCENARIO_REPLY_TOPIC", "")
RECORDS = int(os.environ.get("SCENARIO_RECORDS") or 0)
PART = int(os.environ.get("SCENARIO_PART") or 1)


class Failed(Exception):
    """Something does not hold."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Failed(what)


def equal(seen: object, wanted: object) -> None:
    expect(seen == wanted, f"{seen!r} instead of {wanted!r}")


def say(*words: object) -> None:
    # One write: lines of several threads must not mix.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_for_go() -> None:
    expect(sys.stdin.readline(), "the harness said no go")


def main(scenarios: Mapping[str, Callable[[], object]]) -> None:
    """Play the scenario that the command line names, and give the verdict."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if name not in scenarios:
            raise Failed(f"no scenario {name!r}; there are {', '.join(scenarios)}")
        scenarios[name]()
    except Exception as error:
        traceback.print_exc()
        say("fail:", " ".join(f"{type(error).__name__}: {error}".split()))
        sys.exit(1)
    say("pass")

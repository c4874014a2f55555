"""Run many random histories: `python -m tests.simulation --histories 100000`, or one again: `--seed 4711`."""

import argparse
import os
import sys

from sidecar.model.records import Order
from tests.simulation.campaign import ENOUGH, LEAST_SHARE, campaign
from tests.simulation.coverage import EXPECTED
from tests.simulation.history import Result, run

#: events of a failed history that are shown
_TAIL = 60
_BAR = 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=0, help="how many; their seeds follow each other")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; without --histories, the only one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("--order", choices=[order.value for order in Order], help="only histories with this order")
    arguments = parser.parse_args()
    order = Order(arguments.order) if arguments.order else None
    if not arguments.histories:
        return _one(arguments.seed, order)
    findings = campaign(
        arguments.histories,
        seed=arguments.seed,
        jobs=arguments.jobs,
        order=order,
        progress=_Progress(arguments.histories),
    )
    print(findings.table())
    for result in findings.failures:
        _show(result, order)
    neglected = findings.neglected(EXPECTED) if order is None and findings.histories >= ENOUGH else []
    for name in neglected:
        print(f"exercised in less than {LEAST_SHARE:.0%} of the histories: {name}")
    passed = findings.histories - len(findings.failures)
    print(f"{findings.histories:,} histories, {findings.events:,} events, seeds from {arguments.seed}")
    print(f"{passed} passed, {len(findings.failures)} failed")
    return 1 if findings.failures or neglected else 0


def _one(seed: int, order: Order | None) -> int:
    result = run(seed, order)
    if result.violation:
        _show(result, order)
        return 1
    print(f"seed {seed}: {result.events} events, all promises kept")
    return 0


def _show(result: Result, order: Order | None) -> None:
    print(f"\nFAILED with seed {result.seed}: {result.violation}")
    print(result.plan)
    for event in result.trace[-_TAIL:]:
        print("  ", *event)
    again = f"python -m tests.simulation --seed {result.seed}" + (f" --order {order.value}" if order else "")
    print(f"once more: {again}")


class _Progress:
    """A bar on a terminal; elsewhere ten lines."""

    def __init__(self, histories: int) -> None:
        self._histories = histories
        self._next_line = 0.1

    def __call__(self, done: int, seconds: float) -> None:
        share = done / self._histories
        left = seconds / share * (1 - share)
        text = f"{done:,} of {self._histories:,} histories, {done / seconds:.0f} a second, {left:.0f} s left"
        if sys.stderr.isatty():
            bar = "█" * int(share * _BAR)
            print(f"\r\033[K{bar:░<{_BAR}} {text}", end="\n" if share == 1 else "", file=sys.stderr, flush=True)
        elif share >= self._next_line:
            self._next_line += 0.1
            print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

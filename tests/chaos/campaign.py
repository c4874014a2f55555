"""Plays rounds, and shows how they end."""

import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import brokers, clocks, plan
from tests.chaos.brokers import Broker
from tests.chaos.checker.checker import Verdict
from tests.chaos.faults import FaultKind
from tests.chaos.plan import BrokerKind, Plan
from tests.chaos.round import play

#: seconds of a campaign by default
SECONDS = 600.0
#: how many histories of passed rounds are kept; those of failed rounds all are
_KEPT = 50
#: to the start of the line, and clears it
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True)
class Wish:
    """The arguments of a campaign."""

    seed: int
    brokers: Sequence[BrokerKind]
    #: at the most; 0: as many as there is time for
    rounds: int = 0
    #: seconds after which no round begins; 0: no limit
    seconds: float = SECONDS
    #: the number of the first round
    first: int = 1
    folder: Path = Path(".chaos")


class Campaign:
    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._began = time.monotonic()
        self._brokers: dict[BrokerKind, Broker] = {}
        self._counts: Counter[str] = Counter()
        self._failed: list[Plan] = []
        self._passed: list[Path] = []
        self._played = 0
        self._drawn = 0.0
        self._folder = wish.folder / time.strftime("%Y%m%d-%H%M%S")

    def run(self) -> int:
        """Returns how many rounds failed."""
        say(f"chaos: seed {self._wish.seed}, {', '.join(self._wish.brokers)}, {self._extent()}; in {self._folder}")
        missing = [] if clocks.library() else [clocks.MISSING]
        missing += [] if shutil.which("php") else ["no workers in PHP: php is not there"]
        try:
            while self._goes_on():
                number = self._wish.first + self._played
                kind = self._wish.brokers[number % len(self._wish.brokers)]
                broker = self._broker(kind)
                missing += [f"not {fault}: {why}" for fault, why in broker.cannot.items() if why not in str(missing)]
                self._round(plan_of(self._wish.seed, number, kind, broker), broker)
                self._played += 1
        except KeyboardInterrupt:
            say("interrupted")
        finally:
            for broker in self._brokers.values():
                broker.close()
        for text in missing:
            say(text)
        self._sum_up()
        return len(self._failed)

    def _broker(self, kind: BrokerKind) -> Broker:
        if kind not in self._brokers:
            self._draw(f"starting {kind}")
            self._brokers[kind] = brokers.open_broker(kind, self._folder / "servers")
        return self._brokers[kind]

    def _round(self, planned: Plan, broker: Broker) -> None:
        began = time.monotonic()
        head = f"round {planned.number}{self._of()} {planned.summary}"
        folder = self._folder / f"{planned.number:04d}-{planned.broker}"
        faults = ", ".join(f"{fault.at:.1f} s {fault.kind}" for fault in planned.faults)
        try:
            verdict = play(planned, broker, folder, lambda text: self._draw(f"{head}: {text} ({self._left()})"))
        except Exception as error:
            verdict = Verdict(problems={"The round could be played": [repr(error)]})
            (folder / "verdict.json").write_text(json.dumps(vars(verdict), indent=1))
        self._counts.update(verdict.counts)
        took = time.monotonic() - began
        say(f"{'ok    ' if verdict.passed else 'FAILED'} {head}: {_told(verdict)}; {took:.0f} s [{faults}]")
        if verdict.passed:
            self._forget(folder)
        else:
            self._keep(planned, verdict, broker, folder)

    def _forget(self, folder: Path) -> None:
        """Remove the files of a round that passed, except for its history, which is kept for a while."""
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        self._passed.append(folder)
        if len(self._passed) > _KEPT:
            shutil.rmtree(self._passed.pop(0))

    def _keep(self, planned: Plan, verdict: Verdict, broker: Broker, folder: Path) -> None:
        self._failed.append(planned)
        for line in verdict.lines():
            say(f"    {line}")
        for log in broker.logs():
            shutil.copy(log, folder / f"{planned.broker}-{log.name}")
        say(f"    kept: {folder}")
        say(f"    again: {_again(planned)}")

    def _sum_up(self) -> None:
        told = ", ".join(f"{count:,} {what}" for what, count in self._counts.items())
        say(f"{self._played} rounds, {len(self._failed)} failed; {told}")
        for planned in self._failed:
            say(f"again: {_again(planned)}")

    # How long

    def _goes_on(self) -> bool:
        wish = self._wish
        if wish.rounds and self._played >= wish.rounds:
            return False
        return not wish.seconds or time.monotonic() - self._began < wish.seconds

    def _extent(self) -> str:
        wish = self._wish
        told = [f"{wish.rounds} rounds"] if wish.rounds else []
        return " or ".join([*told, f"{wish.seconds:.0f} s"] if wish.seconds else told)

    def _of(self) -> str:
        return f"/{self._wish.first + self._wish.rounds - 1}" if self._wish.rounds else ""

    def _left(self) -> str:
        seconds = time.monotonic() - self._began
        if self._wish.seconds:
            seconds = max(0.0, self._wish.seconds - seconds)
            return f"{seconds // 60:.0f}:{seconds % 60:02.0f} left"
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f} so far"

    def _draw(self, text: str) -> None:
        """Show what happens now."""
        if sys.stdout.isatty() and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            columns = shutil.get_terminal_size().columns
            print(_CLEAR + text[: columns - 1], end="", flush=True)


def plan_of(seed: int, number: int, kind: BrokerKind, broker: Broker) -> Plan:
    """The plan of a round, with what this machine has."""
    ways = ["threads", "stream", "fetch", *(["php"] if shutil.which("php") else [])]
    without = {*broker.cannot, *(() if clocks.library() else (FaultKind.JUMP_CLOCK,))}
    return plan.make(seed, number, kind, ways=ways, without=without)


def say(text: str) -> None:
    """Print a line that stays."""
    print((_CLEAR if sys.stdout.isatty() else "") + text, flush=True)


def _told(verdict: Verdict) -> str:
    counts = verdict.counts
    if not counts:
        return "no history"
    return (
        f"{counts['records']:,} records, {counts['again after an ack']} again after an ack, "
        f"{counts['dead letters']} dead letters, {counts['parked']} parked"
    )


def _again(planned: Plan) -> str:
    return f"make chaos SEED={planned.seed} ROUND={planned.number} BROKER={planned.broker}"


def a_seed() -> int:
    """A random seed, if none is given."""
    return random.Random(os.urandom(8)).randrange(1, 1_000_000)

"""Raids for so many seconds, and what came of them."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.harness import Sidecar
from tests.fuzz.bystander import OWN, Bystander
from tests.fuzz.raids import RAIDS, TARGET, Loot, stock_up

#: bytes of memory that a sidecar may have after all this
_MOST_MEMORY = 600 << 20
#: raids between two that see to it that there is something to raid
_STOCK_EVERY = 20


@dataclass
class Outcome:
    seed: int
    raids: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    bystander: str = ""


def sidecar_for(folder: Path) -> Sidecar:
    """With a subscription to raid, and one to leave alone."""
    quick = {"retry": {"first": "10ms", "max": "100ms"}, "batch": {"records": 5}}
    return Sidecar(
        folder,
        subscriptions={OWN: {"topics": [OWN]}, TARGET: {"topics": [TARGET], **quick}},
        listen={"tcp": "127.0.0.1:0"},
    )


def run(folder: Path, seed: int, seconds: float, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    chance = random.Random(seed)
    outcome = Outcome(seed)
    loot = Loot(answers=outcome.answers, problems=outcome.problems)
    with sidecar_for(folder) as sidecar:
        tcp = f"127.0.0.1:{sidecar.event('ready')['tcp'].rpartition(':')[2]}"
        with Bystander(sidecar) as bystander:
            ends = time.monotonic() + seconds
            while (left := ends - time.monotonic()) > 0 and not outcome.problems:
                target = chance.choice((sidecar.target, tcp))
                if outcome.raids % _STOCK_EVERY == 0:
                    stock_up(chance, target, loot)
                chance.choice(RAIDS)(chance, target, loot)
                outcome.raids += 1
                if sidecar.process.poll() is not None:
                    outcome.problems.append(f"the sidecar ended with {sidecar.process.returncode}")
                    break
                tell(f"raid {outcome.raids}: {bystander.records} records of the bystander, {left:.0f} s left")
        outcome.problems.extend(bystander.problems())
        outcome.bystander = f"{bystander.records} records, the slowest {bystander.slowest * 1000:.0f} ms"
        outcome.problems.extend(_health(sidecar))
    return outcome


def _health(sidecar: Sidecar) -> list[str]:
    problems = []
    if "Traceback" in sidecar.log:
        at = sidecar.log.index("Traceback")
        problems.append(f"the sidecar logged a bug: {sidecar.log[max(0, at - 500) : at + 3000]}")
    if sidecar.process.poll() is None:
        memory = int(Path(f"/proc/{sidecar.pid}/statm").read_text().split()[1]) * 4096
        if memory > _MOST_MEMORY:
            problems.append(f"the sidecar has {memory >> 20} MiB of memory")
        if sidecar.get("/readyz")[0] != 200:
            problems.append("the sidecar is not ready any more")
    return problems

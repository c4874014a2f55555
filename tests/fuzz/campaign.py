"""Attacks a sidecar for some time, and reports the findings."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc

from tests.e2e.harness import Sidecar
from tests.fuzz.attacks import ATTACKS, TARGET, Findings, publish_targets
from tests.fuzz.control_client import OWN, ControlClient

#: bytes of memory that a sidecar may use after a campaign
_MOST_MEMORY = 600 << 20
#: characters of the sent bytes that a problem shows; the file has all of them
_SHOWN = 2000
#: attacks between two that publish records, so that there is something to attack
_PUBLISH_EVERY = 20


@dataclass
class Outcome:
    seed: int
    attacks: int = 0
    responses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    control_client: str = ""


def sidecar_for(folder: Path) -> Sidecar:
    """A sidecar with a subscription to attack, and one to leave alone."""
    quick = {"retry": {"first": "10ms", "max": "100ms"}, "batch": {"records": 5}}
    return Sidecar(
        folder,
        subscriptions={OWN: {"topics": [OWN]}, TARGET: {"topics": [TARGET], **quick}},
        listen={"tcp": "127.0.0.1:0"},
    )


def run(folder: Path, seed: int, seconds: float, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """What was sent is in `attacks` of the folder, written before it is sent; the sidecar's log is beside it."""
    outcome = Outcome(seed)
    with (folder / "attacks").open("w", buffering=1) as trail, sidecar_for(folder) as sidecar:

        def note(sent: str) -> None:
            trail.write(f"  {sent}\n")

        findings = Findings(responses=outcome.responses, problems=outcome.problems, tell=note)
        tcp = f"127.0.0.1:{sidecar.event('ready')['tcp'].rpartition(':')[2]}"
        with ControlClient(sidecar) as control_client:
            ends = time.monotonic() + seconds
            while (left := ends - time.monotonic()) > 0 and not outcome.problems:
                attack = Attack(seed, outcome.attacks + 1, (sidecar.target, tcp))
                trail.write(f"{attack}\n")
                attack.go(sidecar, findings)
                outcome.attacks += 1
                tell(f"attack {outcome.attacks}: {control_client.records} control records, {left:.0f} s left")
        outcome.problems.extend(control_client.problems())
        outcome.control_client = f"{control_client.records} records, the slowest {control_client.slowest * 1000:.0f} ms"
        outcome.problems.extend(_health(sidecar))
    return outcome


class Attack:
    """One attack. Its random numbers are its own: what the sidecar sent back to others does not change what it does."""

    def __init__(self, seed: int, number: int, targets: tuple[str, str]) -> None:
        self._chance = random.Random(f"{seed} {number}")
        self._number = number
        self._target = self._chance.choice(targets)
        self._kind = self._chance.choice(ATTACKS)

    def __str__(self) -> str:
        return f"attack {self._number} {self._kind.__name__} at {self._target}"

    def go(self, sidecar: Sidecar, findings: Findings) -> None:
        sent = ""

        def note(text: str) -> None:
            nonlocal sent
            sent = text
            findings.tell(text)

        mine = replace(findings, tell=note)
        try:
            if self._number % _PUBLISH_EVERY == 1:
                publish_targets(self._chance, self._target, mine)
            self._kind(self._chance, self._target, mine)
        except (OSError, grpc.RpcError) as error:
            findings.problems.append(f"{self} could not be made: {error!r}; the last that was sent: {sent[:_SHOWN]}")
        if sidecar.process.poll() is not None:
            code = sidecar.process.returncode
            findings.problems.append(
                f"the sidecar ended with {code} in {self}; the last that was sent: {sent[:_SHOWN]}"
            )


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

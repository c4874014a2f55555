"""What no client should send does not crash, hang or confuse a sidecar, nor disturb who behaves: the short form."""

import os
import random
from pathlib import Path

import pytest

from offramp.v1 import consumer_pb2
from tests.fuzz.attacks import ATTACKS
from tests.fuzz.campaign import Attack, run
from tests.fuzz.garbage import KINDS, Kind
from tests.fuzz.messages import fill

SECONDS = 300.0 if os.environ.get("OFFRAMP_TEST_LONG") else 8.0


@pytest.mark.timeout(600)
def test_a_sidecar_under_attack_goes_on_and_serves_others(tmp_path: Path) -> None:
    outcome = run(tmp_path, seed=1, seconds=SECONDS)
    assert not outcome.problems, "\n".join([*outcome.problems, f"see {tmp_path}"])[:5000]
    # All kinds of attacks were used.
    assert {response.partition(":")[0] for response in outcome.responses} >= {"socket", "Fetch", "Settle", "Consume"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_fixes_what_is_sent(kind: Kind) -> None:
    sent = [b"".join(kind(random.Random(seed))) for seed in range(20)]
    assert sent == [b"".join(kind(random.Random(seed))) for seed in range(20)]
    assert all(sent)


def test_messages_are_of_all_sorts() -> None:
    chance = random.Random(1)
    made = [fill(chance, consumer_pb2.ConsumeRequest, {"subscription": ["target"]}) for _ in range(200)]
    assert {one.hello.subscription for one in made} >= {"", "target", "nobody"}
    assert any(settlement.parts for one in made for settlement in one.settlements)
    assert len({one.SerializeToString(deterministic=True) for one in made}) > 190


def test_what_a_sidecar_sent_back_does_not_change_what_is_drawn_next() -> None:
    """Otherwise a seed would not repeat anything."""
    without, with_ = random.Random(1), random.Random(1)
    for number in range(50):
        fill(without, consumer_pb2.ConsumeRequest, {"lease": []})
        fill(with_, consumer_pb2.ConsumeRequest, {"lease": [b"%d" % lease for lease in range(number)]})
    assert without.getstate() == with_.getstate()


def test_a_seed_fixes_every_attack() -> None:
    targets = ("unix:/one", "127.0.0.1:2")
    attacks = [str(Attack(1, number, targets)) for number in range(200)]
    assert attacks == [str(Attack(1, number, targets)) for number in range(200)]
    assert len({attack.split(" ", 2)[2] for attack in attacks}) == 2 * len({*ATTACKS})

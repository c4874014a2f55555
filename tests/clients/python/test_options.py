"""What can be said when connecting, and that the README says it too."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp import aio, options, protocol
from tests.clients import first_steps

CLIENT = Path(__file__).parents[3] / "clients" / "python"
README = (CLIENT / "README.md").read_text()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"credit": 0}, "credit: 0 is less than 1"),
        ({"credit_bytes": -1}, "credit_bytes"),
        ({"max_message_bytes": 100}, "max_message_bytes"),
        ({"lease": 0}, "lease"),
        ({"patience": 0}, "patience"),
        ({"subscription": ""}, "subscription"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_name(wrong: dict[str, Any], named: str) -> None:
    for connect in (offramp.connect, aio.connect):
        with pytest.raises(ValueError, match=named):
            connect(**{"subscription": "orders", **wrong})


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"prefetch": -1}])
def test_a_number_of_workers_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        offramp.Worker("orders", print, **wrong)


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="adress"):
        offramp.connect("orders", adress="x")


def test_a_prefetched_batch_waits_for_a_small_part_of_its_lease_at_the_most() -> None:
    assert options.Options(subscription="orders", credit=1, lease=2).waiting_time == 0.5
    assert options.Options(subscription="orders", credit=1).waiting_time == 1.0


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert offramp.__version__ == project["version"] == protocol.VERSION


def test_the_readme_names_every_option() -> None:
    named = set(re.findall(r"^\| `(\w+)`", README, re.MULTILINE))
    for option in [*offramp.ConnectOptions.__annotations__, "workers", "prefetch", "drain_timeout", "credit"]:
        assert option in named


def test_the_readme_takes_a_new_user_to_a_running_worker(tmp_path: Path) -> None:
    says = r"^INFO:root:(\d+) records of orders$"
    first_steps.follow(CLIENT / "README.md", tmp_path, without=["pip install"], says=says, worker="worker.py")


def test_the_first_page_takes_a_new_user_to_a_running_worker(tmp_path: Path) -> None:
    # Several threads print: lines may be mixed, but no value is.
    says = r"b'\d+'"
    first_steps.follow(first_steps.ROOT / "README.md", tmp_path, without=["pip install"], says=says, worker="worker.py")


def test_the_examples_of_the_readme_use_only_what_there_is() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "offramp":
                assert hasattr(offramp, node.attr), node.attr
            elif isinstance(node, ast.ImportFrom) and node.module == "offramp":
                assert all(hasattr(offramp, name.name) for name in node.names)

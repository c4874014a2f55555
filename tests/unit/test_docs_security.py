"""docs/security.md names a test for each of its statements, and those tests are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_statement_names_tests_that_there_are() -> None:
    table = PAGE.partition("| statement | test |")[2].partition("\n## ")[0].strip().splitlines()[1:]
    assert len(table) >= 15
    for row in table:
        _, statement, tests, _ = re.split(r"(?<!\\)\|", row)
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, f"no test is named for: {statement.strip()}"
        for path, name in named:
            assert name in names_in(path), f"{path} has no {name}"


def test_every_security_test_is_named_or_supports_one_that_is() -> None:
    """A file of tests that no statement names would protect nobody's promise."""
    for path in (ROOT / "tests" / "security").glob("test_*.py"):
        assert f"tests/security/{path.name}::" in PAGE, f"docs/security.md names no test of {path.name}"

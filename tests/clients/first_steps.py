"""What the first block of a client's README tells a new user to type, typed."""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.e2e.harness import eventually

ROOT = Path(__file__).parents[2]


def follow(readme: Path, directory: Path, *, without: Collection[str], says: str) -> None:
    """By copy and paste in `directory`, apart from lines `without` which the tests have been set up already.

    The last line starts the worker; `says` is a pattern for what it prints of each batch, with the number of its
    records. It is stopped once all is done.
    """
    script = re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)[0]
    lines = [line for line in script.splitlines() if not any(word in line for word in without)]
    (directory / "clients").symlink_to(ROOT / "clients")
    (directory / "venv").symlink_to(Path(sys.prefix))
    worker = lines.pop()
    assert "worker" in worker
    before = f"set -eu\ntrap 'kill $(jobs -p)' EXIT\n{os.linesep.join(lines)}"
    (directory / "script").write_text(
        f"{before}\n{worker} > out 2>&1 &\nworker=$!\nread stop\nkill $worker\nwait $worker\n"
    )
    process = subprocess.Popen(
        ["bash", "script"], cwd=directory, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out = directory / "out"
        said = re.compile(says, re.MULTILINE)
        eventually(lambda: out.exists() and sum(map(int, said.findall(out.read_text()))) == 1_000, "all are done")
    finally:
        _, errors = process.communicate("stop\n", timeout=30)
        print(f"the worker said:\n{out.read_text() if out.exists() else '(it was never started)'}")
    assert process.returncode == 0, errors

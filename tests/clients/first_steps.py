"""What the first block of a client's README tells a new user to type, typed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.e2e.harness import eventually

ROOT = Path(__file__).parents[2]


#: where a README that needs a folder of its own makes it
_FOLDER = "/tmp/first-worker"
#: seconds, with what is fetched and built on the way
_COMMAND_TIMEOUT = 600.0


def follow(
    readme: Path, directory: Path, *, without: Collection[str], says: str, worker: str = "worker", ends_with: int = 0
) -> None:
    """By copy and paste in `directory`, apart from lines `without` which the tests have been set up already.

    The last line starts the `worker`; `says` is a pattern for what it prints of each batch, with the number of its
    records. It is stopped once all is done, and ends with that code.
    """
    script = re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)[0]
    script = script.replace(_FOLDER, str(directory / "first-worker"))
    lines = [line for line in script.splitlines() if not any(word in line for word in without)]
    for name in ("clients", "proto"):
        # What is built on the way is built there: others may be at work here.
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
    for name in ("venv", ".venv"):
        (directory / name).symlink_to(Path(sys.prefix))
    out = directory / "out"
    start = lines.pop()
    assert worker in start
    before = f"set -eu\ntrap 'kill $(jobs -p)' EXIT\n{os.linesep.join(lines)}"
    (directory / "script").write_text(
        f"{before}\n{start} > {out} 2>&1 &\nworker=$!\nread stop\nkill $worker\nwait $worker\n"
    )
    # Several READMEs may be followed at once, and the port of the status page is the same in all of them.
    environment = {**os.environ, "OFFRAMP_HTTP__ADDRESS": "127.0.0.1:0"}
    process = subprocess.Popen(
        ["bash", "script"], cwd=directory, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = re.compile(says, re.MULTILINE)

        def done() -> bool:
            assert process.poll() is None, "the script has ended"
            return out.exists() and sum(map(int, said.findall(out.read_text()))) == 1_000

        eventually(done, "all are done", _COMMAND_TIMEOUT)
    finally:
        _, errors = process.communicate("stop\n", timeout=_COMMAND_TIMEOUT)
        print(f"the worker said:\n{out.read_text() if out.exists() else '(it was never started)'}\n{errors}")
    assert process.returncode == ends_with, errors

"""What a README tells a new user to save and to type, saved and typed."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.e2e.harness import eventually

ROOT = Path(__file__).parents[2]

#: seconds, with what is fetched and built on the way
_COMMAND_TIMEOUT = 600.0


def follow(
    readme: Path, directory: Path, *, without: Collection[str], says: str, worker: str, ends_with: int = 0
) -> None:
    """By copy and paste in `directory`, twice, apart from lines `without` which the tests have been set up already.

    Files are the blocks that begin with a comment which is a path. One line starts the `worker`; `says` is a pattern
    for what it prints of each record, or of each batch, with the number of its records. It is stopped once all is done,
    and ends with that code. The lines after it stop all else.
    """
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)
    for _, block in blocks:
        if saved := re.match(r"# (\S+/\S+)\n", block):
            file = directory / saved[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block)
    for name in ("clients", "proto"):
        # What is built on the way is built there: others may be at work here.
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
    (directory / ".venv").symlink_to(Path(sys.prefix))
    script = next(block for kind, block in blocks if kind == "sh" and worker in block)
    lines = [line for line in script.splitlines() if not any(word in line for word in without)]
    at = max(number for number, line in enumerate(lines) if worker in line)
    (directory / "script").write_text(
        "\n".join(
            [
                "set -eu",
                *lines[:at],
                f"{lines[at].partition(' # ')[0]} >out 2>&1 &",
                "read stop",
                "kill $!",
                "wait $! && code=0 || code=$?",
                *lines[at + 1 :],
                "wait",
                "exit $code",
            ]
        )
    )
    for _ in range(2):
        _type(directory, re.compile(says, re.MULTILINE), ends_with)


def _type(directory: Path, says: re.Pattern[str], ends_with: int) -> None:
    out = directory / "out"
    out.write_text("")
    # Python buffers what it prints into a file; and others may use the port of the status page.
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "OFFRAMP_HTTP__ADDRESS": "127.0.0.1:0"}
    process = subprocess.Popen(
        ["bash", "script"],
        cwd=directory,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = ""
    try:

        def done() -> bool:
            assert process.poll() is None, "the script has ended"
            return sum(int(match[1]) if says.groups else 1 for match in says.finditer(out.read_text())) == 1_000

        eventually(done, "all are done", _COMMAND_TIMEOUT)
        said, _ = process.communicate("stop\n", timeout=_COMMAND_TIMEOUT)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said = said or process.communicate()[0]
        print(f"the worker said:\n{out.read_text()}\nand the rest:\n{said}")
    assert process.returncode == ends_with

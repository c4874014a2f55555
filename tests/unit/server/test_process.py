"""The end of the process."""

import subprocess
import sys

CRASHES_ON_THE_WAY_OUT = """
import atexit, os, sys
from sidecar.server import process
atexit.register(os.abort)
print("said", end="")
process.exit_now(3)
"""


def test_a_process_that_has_closed_everything_leaves_without_what_could_crash_it() -> None:
    done = subprocess.run([sys.executable, "-c", CRASHES_ON_THE_WAY_OUT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "said")

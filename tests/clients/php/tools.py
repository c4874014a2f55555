"""PHP and what belongs to it, as far as it is there."""

import shutil
import subprocess
from functools import cache

from tests.servers.tools import give_up

GET = "run `make php`"


@cache
def missing() -> str:
    """A sentence that says what is missing to run the PHP client, and how to get it; empty if nothing is."""
    if shutil.which("php") is None:
        return f"PHP is not installed: {GET}"
    loaded = subprocess.run(["php", "-m"], capture_output=True, text=True, check=True).stdout.lower().split()
    for extension in ("curl", "pcntl", "posix"):
        if extension not in loaded:
            return f"PHP has no {extension} extension: {GET}"
    protobuf = 'exit(stream_resolve_include_path("Google/Protobuf/Internal/Message.php") === false ? 1 : 0);'
    if subprocess.run(["php", "-r", protobuf], check=False).returncode:
        return f"PHP has no protobuf runtime: {GET}"
    return ""


def require(command: str) -> None:
    """Skip on a laptop, fail where everything must be tested, if the command is not there."""
    if shutil.which(command) is None:
        give_up(f"{command} is not installed: {GET}")

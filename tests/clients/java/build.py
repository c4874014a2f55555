"""Builds the Java client, once for all tests."""

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
JAVA = ROOT / "clients/java"
JAR = JAVA / "scenarios/target/offramp-scenarios.jar"

#: for short runs, in which neither the second compiler nor a collector with its own threads pays off
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto")
#: the archive of the runner's loaded classes, without which it takes twice as long to start
ARCHIVE = f"-XX:SharedArchiveFile={JAVA}/scenarios/target/offramp-scenarios.jsa"
#: the command of the runner, to be followed by the name of a scenario
RUNNER = ("java", *QUICK, ARCHIVE, "-jar", str(JAR))


@functools.cache
def missing() -> str:
    """A sentence that says what is missing to run Java; empty if nothing is. Builds the client first."""
    for command in ("java", "javac", "mvn"):
        if shutil.which(command) is None:
            return f"{command} is not there; on Debian: apt install openjdk-17-jdk-headless maven"
    # Tests run in several processes, and two builds in one folder would break each other.
    with Path(JAVA / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(["make", "-s", "java"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"make java failed:\n{built.stdout}{built.stderr}"
    return ""

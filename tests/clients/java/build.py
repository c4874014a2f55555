"""Builds the Java client, once for all tests."""

import fcntl
import functools
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
JAVA = ROOT / "clients/java"
JAR = JAVA / "scenarios/target/offramp-scenarios.jar"

#: a short life: neither the second compiler nor a collector with threads of its own pays off
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto")
#: the classes of the runner as they lie in memory, without which a start takes twice as long
ARCHIVE = f"-XX:SharedArchiveFile={JAVA}/scenarios/target/offramp-scenarios.jsa"
#: and the name of a scenario
RUNNER = ("java", *QUICK, ARCHIVE, "-jar", str(JAR))


@functools.cache
def missing() -> str:
    """What is not there to run Java, in a sentence. Builds what is to be built."""
    for command in ("java", "javac", "mvn"):
        if shutil.which(command) is None:
            return f"{command} is not there; on Debian: apt install openjdk-17-jdk-headless maven"
    # Tests run in several processes, and two builds in one folder would destroy each other.
    with Path(JAVA / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(["make", "-s", "java"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"make java failed:\n{built.stdout}{built.stderr}"
    return ""

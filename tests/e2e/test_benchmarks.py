"""`make bench` runs: some rows, tiny, on the embedded broker. The figures are not judged."""

import json
import subprocess
import sys
from pathlib import Path

ROWS = ("start", "dispatch-16", "batch-handler", "local", "client-python-aio")


def test_the_benchmarks_run_and_write_what_they_measured(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--repeats", "1", "--results", str(path)]
    done = subprocess.run([*command, "--only", *ROWS], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row["value"] for row in json.loads(path.read_text())["rows"]}
    assert {"cold-start", "memory-idle", "dispatch-16", "batch-handler-500", "local-publish-1"} <= set(rows)
    assert all(value > 0 for name, value in rows.items() if not name.endswith(("-cpu", "-client")))
    assert path.with_suffix(".svg").read_text().startswith("<svg")

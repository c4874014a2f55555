"""What the harness did to which process, and when: one line for each event, written at once."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any


class EventLog:
    """Any thread may write. Times are those of the workers' journals; `wall` is for people, and for logs."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def note(self, word: str, who: str = "", pid: int = 0, **more: Any) -> None:
        now = time.monotonic()
        line = {"at": round(now, 3), "round": round(now - self._began, 2), "wall": time.time(), "word": word}
        told = json.dumps({**line, **({"who": who} if who else {}), **({"pid": pid} if pid else {}), **more})
        with self._lock:
            os.write(self._file, (told + "\n").encode())

    def complain(self, text: str) -> None:
        """Report a problem that does not show in the records."""
        self.note("complaint", text=text)

    def close(self) -> None:
        os.close(self._file)

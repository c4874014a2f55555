"""Pictures for the documentation: `python -m tests.page.screenshots FOLDER [SECONDS]`.

A real sidecar on the embedded broker works under load for a while: three workers, some batches slow, some records
rejected, some to be tried again much later. Then its page is looked at in light, in dark, and on a phone.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import offramp
from tests.e2e.harness import Sidecar
from tests.page.browser import Browser

#: seconds of load before the pictures, so that the charts have something to show
_LOAD = 330.0
_LOOKS: dict[str, dict[str, object]] = {
    "status-light": {"height": 1480},
    "status-dark": {"height": 1480, "dark": True},
    "status-phone": {"width": 390, "height": 1900, "scale": 2.0},
}
_SUBSCRIPTIONS = {
    "billing": {
        "topics": ["orders"],
        "batch": {"records": 50},
        "parking": {"after": "10s"},
        "budget": {"concurrency": 16},
    },
}


class Load:
    """Orders that arrive in waves, and workers that handle them, some with failures."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._over = threading.Event()

    def publish(self) -> None:
        chance, number = random.Random(1), 0
        with offramp.Publisher(broker="local", address=self._sidecar.target) as publisher:
            while not self._over.wait(0.2):
                wave = 90 + int(60 * abs((time.monotonic() / 45) % 2 - 1) + chance.random() * 40)
                publisher.publish_many("orders", [offramp.Message(str(number + n)) for n in range(wave)])
                number += wave

    def handle(self, batch: offramp.Batch) -> None:
        chance = random.Random(batch.lease)
        # Now and then one takes long; the others go on.
        self._over.wait(20.0 if chance.random() < 0.004 else 0.02 + 0.06 * chance.random())
        for record in batch:
            number = int(record.value or b"0")
            if number % 1_999 == 0:
                record.reject("no such account")
            elif number % 2_999 == 0:
                record.reject("the amount is negative")
            elif number % 1_499 == 0:
                record.nack("the bank is closed until tomorrow", after=60.0)
            elif number % 700 == 0 and record.attempt == 1:
                record.nack("the bank did not answer within 2 s")

    @contextmanager
    def running(self) -> Iterator[None]:
        workers = [
            offramp.Worker("billing", self.handle, workers=3, address=self._sidecar.target, name=f"billing-{number}")
            for number in range(3)
        ]
        threads = [threading.Thread(target=work) for work in (self.publish, *(worker.run for worker in workers))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for worker in workers:
                worker.drain()
            for thread in threads:
                thread.join()


def main(folder: Path, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sidecar = Sidecar(Path(scratch), subscriptions=_SUBSCRIPTIONS, log={"format": "json", "level": "info"})
        with sidecar, Browser(Path(scratch)) as browser, Load(sidecar).running():
            time.sleep(seconds)
            for name, looks in _LOOKS.items():
                browser.emulate(**looks)  # type: ignore[arg-type]
                browser.open(f"http://{sidecar.http}/")
                browser.wait_for(lambda: browser.run("return document.querySelectorAll('.area').length >= 3"), "charts")
                browser.screenshot(folder / f"{name}.png", whole=False)
                print(folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else _LOAD)

"""A fake sidecar for blocking tests. It lives on the client's own loop: gRPC serves one loop of a process well."""

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from offramp._internal.background_loop import shared_loop
from tests.clients.python.fake_sidecar import FakeSidecar


class Blocking:
    """A fake sidecar as blocking tests see it."""

    def __init__(self, fake: FakeSidecar, call: Any) -> None:
        self.fake = fake
        self.address = fake.address
        self._call = call

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the fake do it: `sidecar(sidecar.fake.offer([b"1"]))`."""
        return self._call(work)

    def offer(self, *values: list[bytes], **about: Any) -> None:
        self._call(self.fake.offer(*values, **about))

    def until(self, what: Any) -> None:
        self._call(self.fake.until(what))


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Blocking]:
    background = shared_loop.acquire()

    async def make() -> FakeSidecar:
        fake = FakeSidecar(tmp_path / "s")
        await fake.start()
        return fake

    fake = background.call(make())
    try:
        yield Blocking(fake, background.call)
        assert fake.violations == []
    finally:
        background.call(fake.stop())
        shared_loop.release(background)

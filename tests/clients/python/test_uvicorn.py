"""Workers and consumers inside a web server, which has handlers of its own for the signals that end it."""

import signal

import pytest

from tests.clients.python.conftest import Blocking
from tests.clients.python.test_drain import finish, running, take

#: a server without routes, around the life of what takes batches
SERVER = """
import contextlib, threading, uvicorn

address = sys.argv[1]

async def app(scope, receive, send):
    await receive()
    async with life():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})

@contextlib.asynccontextmanager
async def life():
"""

SERVE = """
uvicorn.run(app, uds=address.removeprefix("unix:") + "-http", log_level="warning")
"""

TASK = """
    running = asyncio.create_task(offramp.aio.Worker("orders", work_async, address=address).run())
    yield
    await running
"""

CONSUMER = """
    async def consume():
        async with offramp.aio.connect("orders", address=address) as consumer:
            async for batch in consumer:
                await work_async(batch)
                batch.ack()

    running = asyncio.create_task(consume())
    yield
    await running
"""

THREAD = """
    worker = offramp.Worker("orders", work, address=address)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield
    worker.drain()
    await asyncio.to_thread(thread.join)
"""

LIVES = {"a worker in a task": TASK, "a consumer in a task": CONSUMER, "a worker in a thread": THREAD}


# A server that has ended in order raises SIGTERM again.
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)])
@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_a_signal_ends_the_server_once_the_batch_in_hand_is_settled(
    sidecar: Blocking, life: str, number: signal.Signals, code: int
) -> None:
    sidecar.offer([b"1"])
    with running(SERVER + life + SERVE, sidecar.address) as process:
        take(process)
        process.send_signal(number)
        sidecar.until(lambda: sidecar.fake.sessions[0].draining)
        finish(process)
        assert process.returncode == code
    assert sidecar.fake.of("ACK") == [b"1"]
    assert sidecar.fake.sessions[0].half_closed

"""What a signal does to a real process: finish what is in hand, settle it, give the rest back, leave in order."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.clients.python.conftest import Blocking

WAIT = """
import asyncio, sys, offramp

def work(batch):
    print("took", flush=True)
    sys.stdin.readline()

async def work_async(batch):
    print("took", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
"""

WORKER = "offramp.Worker('orders', work, address=sys.argv[1]).run()"

ITERATOR = """
with offramp.connect("orders", address=sys.argv[1]) as consumer:
    for batch in consumer:
        work(batch)
        batch.ack()
"""

ASYNC_WORKER = "asyncio.run(offramp.aio.Worker('orders', work_async, address=sys.argv[1]).run())"

ASYNC_ITERATOR = """
async def main():
    async with offramp.aio.connect("orders", address=sys.argv[1]) as consumer:
        async for batch in consumer:
            await work_async(batch)
            batch.ack()

asyncio.run(main())
"""

SCRIPTS = {"worker": WORKER, "iterator": ITERATOR, "async worker": ASYNC_WORKER, "async iterator": ASYNC_ITERATOR}


@contextmanager
def running(script: str, address: str) -> Iterator["subprocess.Popen[str]"]:
    """A process whose handler says that it took a batch, and waits for a line before it is done with it."""
    command = [sys.executable, "-c", WAIT + script, address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def take(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "took\n"


def finish(process: "subprocess.Popen[str]") -> str:
    """Let the handler be done, and wait for the end of the process. Returns what it wrote to stderr."""
    _, complaints = process.communicate("\n", timeout=60)
    return complaints


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_sigterm_lets_the_batch_in_hand_finish_and_gives_the_rest_back(sidecar: Blocking, script: str) -> None:
    sidecar.offer([b"1"], [b"2"])
    with running(script, sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGTERM)
        session = sidecar.fake.sessions[0]
        sidecar.until(lambda: session.draining and sidecar.fake.of("RELEASE") == [b"2"])
        assert not session.read_all
        assert finish(process) == ""
        assert process.returncode == 0
    sidecar.until(lambda: session.ended)
    assert session.half_closed
    assert sidecar.fake.of("ACK") == [b"1"]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_sigterm_ends_a_process_that_waits_for_a_batch(sidecar: Blocking, script: str) -> None:
    with running(script, sidecar.address) as process:
        sidecar(sidecar.fake.begun())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    sidecar.until(lambda: sidecar.fake.sessions[0].half_closed)


@pytest.mark.parametrize("script", ["worker", "async worker"])
def test_a_first_interrupt_drains_and_a_second_one_interrupts(sidecar: Blocking, script: str) -> None:
    sidecar.offer([b"1"])
    with running(SCRIPTS[script], sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGINT)
        session = sidecar.fake.sessions[0]
        sidecar.until(lambda: session.draining)
        process.send_signal(signal.SIGINT)
        sidecar.until(lambda: session.ended)
        assert "KeyboardInterrupt" in finish(process)
        assert process.returncode != 0
    assert not session.half_closed
    assert sidecar.fake.ready[0].possibly_processed


@pytest.mark.parametrize("script", ["iterator", "async iterator"])
def test_an_interrupt_in_the_middle_of_a_batch_leaves_it_possibly_processed(sidecar: Blocking, script: str) -> None:
    sidecar.offer([b"1"], [b"2"])
    with running(SCRIPTS[script], sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGINT)
        sidecar.until(lambda: sidecar.fake.sessions[0].ended)
        finish(process)
        assert process.returncode != 0
    assert sidecar.fake.of("RELEASE") == [b"2"]
    assert {parcel.records[0].value: parcel.possibly_processed for parcel in sidecar.fake.ready} == {
        b"1": True,
        b"2": False,
    }


TWO_THREADS = """
import threading
other = offramp.Worker("orders", work, address=sys.argv[1], prefetch=0)
thread = threading.Thread(target=other.run)
thread.start()
offramp.Worker("orders", work, address=sys.argv[1], prefetch=0).run()
thread.join()
"""

TWO_TASKS = """
async def main():
    workers = [offramp.aio.Worker("orders", work_async, address=sys.argv[1], prefetch=0) for _ in range(2)]
    await asyncio.gather(*(worker.run() for worker in workers))

asyncio.run(main())
"""

ONE_OF_EACH = """
with offramp.connect("orders", address=sys.argv[1], credit=1) as consumer:
    offramp.Worker("orders", work, address=sys.argv[1], prefetch=0).run()
    for batch in consumer:
        batch.ack()
"""

SEVERAL = {"in two threads": TWO_THREADS, "in two tasks": TWO_TASKS, "a worker and a consumer": ONE_OF_EACH}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("script", SEVERAL.values(), ids=SEVERAL)
def test_a_signal_drains_all_that_one_process_has(sidecar: Blocking, script: str, number: signal.Signals) -> None:
    with running(script, sidecar.address) as process:
        sidecar(sidecar.fake.begun(session=1))
        process.send_signal(number)
        assert finish(process) == ""
        assert process.returncode == 0
    sidecar.until(lambda: all(session.half_closed for session in sidecar.fake.sessions))


LATE = """
def late(batch):
    work(batch)
    offramp.Worker("orders", print, address=sys.argv[1]).run()

offramp.Worker("orders", late, address=sys.argv[1]).run()
"""


def test_a_worker_that_starts_while_others_drain_drains_too(sidecar: Blocking) -> None:
    sidecar.offer([b"1"])
    with running(LATE, sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGTERM)
        sidecar.until(lambda: sidecar.fake.sessions[0].draining)
        assert finish(process) == ""
        assert process.returncode == 0


OWN = """
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
"""


@pytest.mark.parametrize("script", ["iterator", "async iterator"])
def test_the_apps_own_handler_acts_at_once_while_a_consumer_is_open(sidecar: Blocking, script: str) -> None:
    with running(OWN + SCRIPTS[script], sidecar.address) as process:
        sidecar(sidecar.fake.begun())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 7


@pytest.mark.parametrize("script", ["worker", "async worker"])
def test_an_exit_of_the_apps_own_handler_waits_for_what_workers_have_in_hand(sidecar: Blocking, script: str) -> None:
    sidecar.offer([b"1"])
    with running(OWN + SCRIPTS[script], sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGTERM)
        sidecar.until(lambda: sidecar.fake.sessions[0].draining)
        assert finish(process) == ""
        assert process.returncode == 7
    assert sidecar.fake.of("ACK") == [b"1"]
    assert sidecar.fake.sessions[0].half_closed


@pytest.mark.parametrize("script", ["worker", "async worker"])
def test_a_second_sigterm_acts_as_it_would_without_the_worker(sidecar: Blocking, script: str) -> None:
    sidecar.offer([b"1"])
    with running(OWN + SCRIPTS[script], sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGTERM)
        sidecar.until(lambda: sidecar.fake.sessions[0].draining)
        process.send_signal(signal.SIGTERM)
        sidecar.until(lambda: sidecar.fake.sessions[0].ended)
        finish(process)
        assert process.returncode == 7
    assert sidecar.fake.ready[0].possibly_processed


POLLING = """
with offramp.connect("orders", address=sys.argv[1]) as consumer:
    try:
        while True:
            batch = consumer.take(timeout=0.01)
            if batch is not None:
                print("took", flush=True)
                held = batch
    except offramp.errors.Drained as error:
        print(error, flush=True)
        assert held.ack().result().settled
"""


def test_one_who_polls_learns_that_no_further_batch_comes(sidecar: Blocking) -> None:
    sidecar.offer([b"1"])
    with running(POLLING, sidecar.address) as process:
        take(process)
        process.send_signal(signal.SIGTERM)
        said, complaints = process.communicate(timeout=60)
        assert (said, complaints) == ("the consumer of orders drains: no further batch comes\n", "")
        assert process.returncode == 0
    assert sidecar.fake.of("ACK") == [b"1"]


def test_a_killed_process_loses_nothing(sidecar: Blocking) -> None:
    sidecar.offer([b"1"], [b"2"])
    with running(WORKER, sidecar.address) as process:
        take(process)
        process.kill()
        sidecar.until(lambda: sidecar.fake.sessions[0].ended)
    assert not sidecar.fake.sessions[0].half_closed
    assert {parcel.records[0].value for parcel in sidecar.fake.ready} == {b"1", b"2"}
    assert all(parcel.possibly_processed for parcel in sidecar.fake.ready)

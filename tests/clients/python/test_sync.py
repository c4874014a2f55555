"""Consumers and workers for code that blocks."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import offramp
from offramp._internal.background_loop import shared_loop
from tests.clients.python.conftest import Blocking


def test_batches_are_iterated_over_in_a_plain_script(sidecar: Blocking) -> None:
    sidecar.offer([b"1", b"2"], [b"3"])
    values = []
    with offramp.connect("orders", address=sidecar.address) as consumer:
        for batch in consumer:
            values += [record.value for record in batch]
            assert batch.ack().result(timeout=30).settled
            if len(values) == 3:
                consumer.drain()
    assert values == [b"1", b"2", b"3"]
    (session,) = sidecar.fake.sessions
    sidecar.until(lambda: session.ended)
    assert session.half_closed


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, (b"x", "ACK", "", None)),
        (ValueError("broken"), (b"x", "NACK", "ValueError: broken", None)),
        (offramp.Retry(after=0.5), (b"x", "NACK", "", 500)),
        (offramp.Reject(ValueError("never")), (b"x", "REJECT", "ValueError: never", None)),
    ],
)
def test_how_a_handler_ends_says_what_becomes_of_its_batch(
    sidecar: Blocking, error: Exception | None, outcome: object
) -> None:
    def handle(batch: offramp.Batch) -> None:
        worker.drain()
        if error is not None:
            raise error

    sidecar.offer([b"x"])
    worker = offramp.Worker("orders", handle, address=sidecar.address)
    worker.run()
    # What is to be tried again may come back before the drain is through; then it is released.
    first, *others = sidecar.fake.outcomes
    assert first == outcome
    assert {said for _, said, *_ in others} <= {"RELEASE"}


def test_a_handler_runs_in_as_many_threads_as_there_are_workers(sidecar: Blocking) -> None:
    together = threading.Barrier(4)

    def handle(batch: offramp.Batch) -> None:
        together.wait(timeout=30)

    sidecar.offer(*([b"%d" % number] for number in range(40)))
    worker = offramp.Worker("orders", handle, workers=4, address=sidecar.address)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        sidecar.until(lambda: len(sidecar.fake.of("ACK")) == 40)
        assert worker.connected
        worker.drain()
        run.result(timeout=30)
    assert len(sidecar.fake.sessions) == 1


def test_several_threads_take_and_settle_at_once(sidecar: Blocking) -> None:
    sidecar.offer(*([b"%d" % number] for number in range(1_000)))
    answers = []
    with offramp.connect("orders", address=sidecar.address, credit=20) as consumer, ThreadPoolExecutor(8) as pool:

        def work() -> None:
            for batch in consumer:
                answers.append(batch.ack())

        threads = [pool.submit(work) for _ in range(8)]
        sidecar.until(lambda: len(sidecar.fake.outcomes) == 1_000)
        consumer.drain()
        for thread in threads:
            thread.result(timeout=30)
        assert all(answer.result(timeout=30).settled for answer in answers)
    assert sorted(sidecar.fake.of("ACK")) == sorted(b"%d" % number for number in range(1_000))


def test_several_threads_may_mark_and_settle_one_batch_and_one_of_them_wins(sidecar: Blocking) -> None:
    sidecar.offer([b"%d" % number for number in range(100)])
    with offramp.connect("orders", address=sidecar.address) as consumer, ThreadPoolExecutor(8) as pool:
        batch = next(consumer)
        list(pool.map(offramp.Record.ack, batch))
        together = threading.Barrier(8)

        def settle() -> bool:
            together.wait(timeout=30)
            try:
                batch.nack("never seen")
            except offramp.errors.AlreadySettled:
                return False
            return True

        won = [pool.submit(settle) for _ in range(8)]
        assert sum(one.result(timeout=30) for one in won) == 1
    assert len(sidecar.fake.of("ACK")) == 100


def test_taking_with_a_timeout_gives_none_when_nothing_comes(sidecar: Blocking) -> None:
    with offramp.connect("orders", address=sidecar.address) as consumer:
        assert consumer.take(timeout=0.01) is None
        sidecar.offer([b"1"])
        batch = consumer.take(timeout=30)
        assert batch is not None
        batch.ack()


def test_an_error_on_the_connection_comes_out_where_batches_are_taken(sidecar: Blocking) -> None:
    sidecar.fake.refuse = (grpc.StatusCode.NOT_FOUND, "there are: orders")
    with (
        offramp.connect("ordrs", address=sidecar.address) as consumer,
        pytest.raises(offramp.errors.NotFound, match="there are: orders"),
    ):
        next(consumer)
    with pytest.raises(offramp.errors.NotFound):
        offramp.Worker("ordrs", print, workers=2, address=sidecar.address).run()


def test_batches_in_hand_are_released_on_close_and_nacked_on_failure(sidecar: Blocking) -> None:
    def fail() -> None:
        with offramp.connect("orders", address=sidecar.address) as consumer:
            next(consumer)
            raise ValueError("poison")

    sidecar.offer([b"1"])
    consumer = offramp.connect("orders", address=sidecar.address)
    assert consumer.take() is not None
    consumer.close()
    consumer.close()
    with pytest.raises(offramp.errors.Closed):
        next(consumer)
    with pytest.raises(ValueError, match="poison"):
        fail()
    assert [(said, reason) for _, said, reason, _ in sidecar.fake.outcomes] == [
        ("RELEASE", ""),
        ("NACK", "ValueError: poison"),
    ]


def test_closing_wakes_those_who_wait(sidecar: Blocking) -> None:
    consumer = offramp.connect("orders", address=sidecar.address)
    consumer.open()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(consumer.take)
        sidecar.until(lambda: sidecar.fake.sessions)
        consumer.close()
        with pytest.raises(offramp.errors.Drained):
            waiting.result(timeout=30)


def test_a_handler_that_ends_the_process_is_heard_by_whoever_runs_the_worker(sidecar: Blocking) -> None:
    def handle(batch: offramp.Batch) -> None:
        sys.exit(3)

    sidecar.offer([b"1"])
    with pytest.raises(SystemExit) as caught:
        offramp.Worker("orders", handle, address=sidecar.address).run()
    assert caught.value.code == 3
    assert sidecar.fake.of("NACK") == [b"1"]


def test_a_handler_that_outlasts_the_drain_is_left_and_its_batch_possibly_processed(sidecar: Blocking) -> None:
    go = threading.Event()

    def handle(batch: offramp.Batch) -> None:
        worker.drain()
        go.wait(timeout=30)

    sidecar.offer([b"1"])
    worker = offramp.Worker("orders", handle, address=sidecar.address, drain_timeout=0.01)
    worker.run()
    sidecar.until(lambda: sidecar.fake.sessions[0].ended)
    assert sidecar.fake.outcomes == []
    assert sidecar.fake.ready[0].possibly_processed
    go.set()


def test_a_worker_that_was_drained_before_it_ran_returns_at_once(sidecar: Blocking) -> None:
    worker = offramp.Worker("orders", print, address=sidecar.address)
    worker.drain()
    worker.run()
    worker.drain()
    with pytest.raises(RuntimeError, match="already"):
        worker.run()


def test_workers_go_on_after_the_sidecar_restarts(sidecar: Blocking) -> None:
    worker = offramp.Worker("orders", len, workers=3, address=sidecar.address)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(worker.run)
        for life in range(2):
            sidecar(sidecar.fake.begun(life))
            sidecar.offer([b"%d" % life])
            sidecar.until(lambda life=life: len(sidecar.fake.of("ACK")) == life + 1)
            sidecar(sidecar.fake.restart())
        worker.drain()
        run.result(timeout=30)


def test_a_callback_that_would_wait_for_its_own_thread_is_told_so(
    sidecar: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar.offer([b"1"])
    with offramp.connect("orders", address=sidecar.address, on_result=lambda *_: other.open()) as consumer:
        other = offramp.connect("orders", address=sidecar.address)
        assert next(consumer).ack().result(timeout=30).settled
    assert "on_result must not block" in caplog.text


def test_a_slow_thread_does_not_keep_other_batches_waiting(sidecar: Blocking) -> None:
    sidecar.offer([b"1"], [b"2"])
    with offramp.connect("orders", address=sidecar.address, patience=1.0) as consumer:
        slow = next(consumer)
        sidecar.until(lambda: sidecar.fake.of("RELEASE") == [b"2"])
        slow.ack()
        again = next(consumer)
        assert again[0].value == b"2"
        again.ack()


def test_a_coroutine_function_is_no_handler_for_threads() -> None:
    async def handle(batch: offramp.Batch) -> None: ...

    with pytest.raises(TypeError, match=r"offramp\.aio\.Worker"):
        offramp.Worker("orders", handle)


def test_the_thread_that_talks_to_the_sidecar_is_there_only_while_it_is_used(sidecar: Blocking) -> None:
    def talking() -> int:
        return sum(thread.name == "offramp" for thread in threading.enumerate())

    with offramp.connect("orders", address=sidecar.address), offramp.connect("orders", address=sidecar.address):
        assert talking() == 1
    background = shared_loop.acquire()
    shared_loop.release(background)
    assert talking() == 1  # The fake sidecar lives there too.


FORKS = """
import os, sys, offramp
consumer = offramp.connect("orders", address=sys.argv[1])
publisher = offramp.Publisher(broker="local", address=sys.argv[1])
batch = consumer.take()
if os.fork():
    _, status = os.wait()
    batch.ack().result()
    consumer.close()
    sys.exit(os.waitstatus_to_exitcode(status))
seen = []
publish = lambda: publisher.publish("orders", b"x")
inherited = (consumer.take, batch.ack, lambda: batch.extend(1), publish, consumer.close)
anew = (lambda: offramp.connect("orders", address=sys.argv[1]).take(), lambda: offramp.Publisher(broker="local"))
for use in inherited + anew:
    try:
        use()
    except offramp.errors.Forked as error:
        seen.append("after the fork" in str(error) if use in inherited else "fork before" in str(error))
os._exit(0 if seen == [True] * 7 else 1)
"""

#: a child that comes out of the block in which its parent forked
FORKS_INSIDE = """
import os, sys, offramp
try:
    with offramp.connect("orders", address=sys.argv[1]) as consumer:
        batch = consumer.take()
        if os.fork() == 0:
            raise LookupError
        _, status = os.wait()
        batch.ack().result()
except offramp.errors.Forked:
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(status) != 7)
"""

#: what a handler may do that has work for other processes
FORKING_HANDLER = """
import multiprocessing, sys, offramp

def handle(batch):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(len, [record.value for record in batch]) == [1] * len(batch)
    worker.drain()

worker = offramp.Worker("orders", handle, address=sys.argv[1], workers=2)
worker.run()
"""


def test_a_child_that_leaves_its_parent_s_block_is_told_that_it_is_not_its_own(sidecar: Blocking) -> None:
    sidecar.offer([b"1"])
    subprocess.run([sys.executable, "-c", FORKS_INSIDE, sidecar.address], check=True, timeout=60)
    assert sidecar.fake.of("ACK") == [b"1"]


def test_use_in_a_forked_child_is_refused_and_the_parent_goes_on(sidecar: Blocking) -> None:
    sidecar.offer([b"1"])
    subprocess.run([sys.executable, "-c", FORKS, sidecar.address], check=True, timeout=60)
    assert sidecar.fake.of("ACK") == [b"1"]


def test_a_handler_may_fork_for_its_own_work(sidecar: Blocking) -> None:
    sidecar.offer([b"1", b"2", b"3"])
    subprocess.run([sys.executable, "-c", FORKING_HANDLER, sidecar.address], check=True, timeout=60)
    assert sidecar.fake.of("ACK") == [b"1", b"2", b"3"]


SLOPPY = """
import sys, offramp
consumer = offramp.connect("orders", address=sys.argv[1])
print(len(consumer.take()))
"""


def test_a_script_that_forgets_to_close_its_consumer_still_ends(sidecar: Blocking) -> None:
    sidecar.offer([b"1"])
    done = subprocess.run(
        [sys.executable, "-c", SLOPPY, sidecar.address], check=True, timeout=60, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    sidecar.until(lambda: sidecar.fake.ready and sidecar.fake.ready[0].possibly_processed)

package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.offramp.v1.Outcome;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;

class AsyncHandlerTest extends FakeSidecarTest {
    @Test
    void aStageThatCompletesWithAStageIsDoneWhenThatOneIs() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<Void> work = new CompletableFuture<>();
        offramp.worker("orders")
                .asyncHandler(batch -> CompletableFuture.completedFuture(batch).thenApply(one -> work))
                .start();
        work.completeExceptionally(new IllegalStateException("the bank is closed"));
        sidecar.eventually(() -> !sidecar.settled.isEmpty());
        FakeSidecar.SettledRecord said = sidecar.settled.get(0);
        assertEquals(Outcome.OUTCOME_NACK, said.outcome());
        assertEquals("IllegalStateException: the bank is closed", said.reason());
    }

    @Test
    void aHandlerThatLeavesItsThreadInterruptedDoesNotEndItsWorker() throws Exception {
        sidecar.offer(List.of(1), List.of(2), List.of(3));
        CompletableFuture<Void> first = new CompletableFuture<>();
        offramp.worker("orders").workers(2).asyncHandler(batch -> {
            Thread.currentThread().interrupt();
            return batch.get(0).valueAsText().equals("1") ? first : CompletableFuture.completedFuture(null);
        }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 2);
        first.complete(null);
        sidecar.eventually(() -> sidecar.acked().size() == 3);
        assertEquals(List.of("2", "3", "1"), sidecar.acked());
    }

    @Test
    void aHandlerThatLeavesItsThreadInterruptedIsWaitedForWhenItsWorkerDrains() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<Worker> self = new CompletableFuture<>();
        CompletableFuture<Void> work = new CompletableFuture<>();
        Worker worker = offramp.worker("orders").workers(2).asyncHandler(batch -> {
            self.join().drain();
            Thread.currentThread().interrupt();
            return work;
        }).start();
        self.complete(worker);
        assertFalse(worker.join(Duration.ofMillis(200)));
        work.complete(null);
        worker.join();
        assertEquals(List.of("1"), sidecar.acked());
    }

    @Test
    void anInterruptThatComesLateDoesNotEndTheWorker() throws Exception {
        CompletableFuture<Thread> starter = new CompletableFuture<>();
        Map<String, CompletableFuture<Void>> work = new ConcurrentHashMap<>();
        for (String value : List.of("1", "2")) {
            work.put(value, new CompletableFuture<>());
        }
        sidecar.offer(List.of(1));
        offramp.worker("orders").asyncHandler(batch -> {
            starter.complete(Thread.currentThread());
            return work.get(batch.get(0).valueAsText());
        }).start();
        // While it waits for a handler to end, and then for a batch.
        interruptOnceIt(Thread.State.WAITING, starter.join());
        work.get("1").complete(null);
        interruptOnceIt(Thread.State.TIMED_WAITING, starter.join());
        work.get("2").complete(null);
        sidecar.offer(List.of(2));
        sidecar.eventually(() -> sidecar.acked().size() == 2);
    }

    private static void interruptOnceIt(Thread.State waits, Thread thread) {
        while (thread.getState() != waits) {
            if (!thread.isAlive()) {
                throw new AssertionError("the thread has ended");
            }
            Thread.onSpinWait();
        }
        thread.interrupt();
    }

    @Test
    void aStageThatDoesNotEndInTimeIsAbandonedAndTheThreadEnds() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        CompletableFuture<Thread> starter = new CompletableFuture<>();
        Worker worker = offramp.worker("orders").drainTimeout(Duration.ofMillis(10)).asyncHandler(batch -> {
            starter.complete(Thread.currentThread());
            return new CompletableFuture<>();
        }).start();
        starter.join();
        worker.close();
        starter.join().join(TIMEOUT.toMillis());
        assertFalse(starter.join().isAlive());
        assertEquals(List.of(), sidecar.acked());
    }

    @Test
    void aHandlerThatSwallowsItsInterruptIsAbandonedAndTheThreadEnds() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<Thread> starter = new CompletableFuture<>();
        Worker worker = offramp.worker("orders").workers(2).drainTimeout(Duration.ofMillis(10)).asyncHandler(batch -> {
            starter.complete(Thread.currentThread());
            try {
                Thread.sleep(TIMEOUT.toMillis());
            } catch (InterruptedException error) {
                // Swallowed.
            }
            return new CompletableFuture<>();
        }).start();
        starter.join();
        worker.close();
        starter.join().join(TIMEOUT.toMillis());
        assertFalse(starter.join().isAlive());
    }
}

package io.offramp;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.offramp.v1.Outcome;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

class WorkerTest extends FakeSidecarTest {
    @Test
    void aBatchWhoseHandlerReturnsIsAcked() throws Exception {
        sidecar.offer(List.of(1, 2), List.of(3));
        offramp.worker("orders").handler(batch -> {}).start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("1", "2", "3")));
    }

    @Test
    void aBatchWhoseHandlerThrowsIsNackedWithTheExceptionAsTheReason() throws Exception {
        sidecar.offer(List.of(1));
        AtomicBoolean failed = new AtomicBoolean();
        offramp.worker("orders").handler(batch -> {
            if (failed.compareAndSet(false, true)) {
                throw new java.io.IOException("the bank is closed");
            }
            assertEquals(2, batch.get(0).attempt());
        }).start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("1")));
        assertEquals(
                new FakeSidecar.SettledRecord("1", Outcome.OUTCOME_NACK, "IOException: the bank is closed", null),
                sidecar.settled.get(0));
    }

    @Test
    void theExceptionOfAHandlerSetsTheOutcome() throws Exception {
        sidecar.offer(List.of("retry"), List.of("reject"), List.of("release"), List.of("overloaded"));
        Set<String> done = ConcurrentHashMap.newKeySet();
        offramp.worker("orders").handler(batch -> {
            String value = batch.get(0).valueAsText();
            if (!done.add(value)) {
                return;
            }
            throw switch (value) {
                case "retry" -> SettleAs.retry("later", Duration.ofSeconds(30));
                case "reject" -> SettleAs.reject("never");
                case "release" -> SettleAs.release();
                default -> SettleAs.overloaded("less", Duration.ofMillis(5));
            };
        }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 3);
        assertEquals(
                List.of(
                        new FakeSidecar.SettledRecord("retry", Outcome.OUTCOME_NACK, "later", 30_000L),
                        new FakeSidecar.SettledRecord("reject", Outcome.OUTCOME_REJECT, "never", null),
                        new FakeSidecar.SettledRecord("release", Outcome.OUTCOME_RELEASE, "", null),
                        new FakeSidecar.SettledRecord("overloaded", Outcome.OUTCOME_OVERLOADED, "less", 5L)),
                sidecar.settled.stream().filter(record -> record.outcome() != Outcome.OUTCOME_ACK).toList());
    }

    @Test
    void marksAreKeptWhenTheHandlerThrows() throws Exception {
        sidecar.offer(List.of(1, 2, 3));
        AtomicBoolean failed = new AtomicBoolean();
        offramp.worker("orders").handler(batch -> {
            if (failed.compareAndSet(false, true)) {
                batch.get(0).ack();
                batch.get(2).reject("bad");
                throw new IllegalStateException("unexpected");
            }
        }).start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("1", "2")));
        assertEquals(List.of("2"), sidecar.settledWith(Outcome.OUTCOME_NACK));
        assertEquals(List.of("3"), sidecar.settledWith(Outcome.OUTCOME_REJECT));
    }

    @Test
    void anErrorOfAHandlerIsANackAndTheWorkerGoesOn() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        AtomicBoolean failed = new AtomicBoolean();
        offramp.worker("orders").handler(batch -> {
            if (failed.compareAndSet(false, true)) {
                throw new StackOverflowError("too deep");
            }
        }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 2);
        assertEquals(List.of("1"), sidecar.settledWith(Outcome.OUTCOME_NACK));
    }

    @Test
    void asManyHandlersRunAtATimeAsThereAreWorkers() throws Exception {
        CountDownLatch together = new CountDownLatch(4);
        sidecar.offer(List.of(1), List.of(2), List.of(3), List.of(4));
        offramp.worker("orders").workers(4).handler(batch -> {
            together.countDown();
            together.await();
        }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 4);
        assertEquals(1, sidecar.sessions.size());
    }

    @Test
    void aHandlerThatLeavesItsThreadInterruptedDoesNotEndItsWorker() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        offramp.worker("orders").handler(batch -> { Thread.currentThread().interrupt(); }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 2);
    }

    @Test
    void aHandlerMayRunOnAnExecutorOfTheApp() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(2, task -> new Thread(task, "mine"));
        try {
            sidecar.offer(List.of(1));
            CompletableFuture<String> thread = new CompletableFuture<>();
            Worker worker = offramp.worker("orders")
                    .workers(2)
                    .executor(executor)
                    .handler(batch -> thread.complete(Thread.currentThread().getName()))
                    .start();
            assertEquals("mine", thread.join());
            worker.close();
            assertFalse(executor.isShutdown());
        } finally {
            executor.shutdownNow();
        }
    }

    @Test
    void anExecutorThatTakesNoWorkersIsAnErrorAtTheStart() {
        ExecutorService executor = Executors.newCachedThreadPool();
        executor.shutdown();
        Worker.Builder worker = offramp.worker("orders").executor(executor).handler(batch -> {});
        assertThrows(RejectedExecutionException.class, worker::start);
    }

    @Test
    void anAsynchronousHandlerIsDoneWhenItsStageIs() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        CompletableFuture<Void> first = new CompletableFuture<>();
        offramp.worker("orders").workers(2).asyncHandler(batch ->
                batch.get(0).valueAsText().equals("1") ? first : CompletableFuture.completedFuture(null)).start();
        sidecar.eventually(() -> sidecar.acked().equals(List.of("2")));
        first.complete(null);
        sidecar.eventually(() -> sidecar.acked().equals(List.of("2", "1")));
    }

    @Test
    void theFailureOfAStageSetsTheOutcome() throws Exception {
        sidecar.offer(List.of("fails"), List.of("wrapped"), List.of("throws"), List.of("null"));
        Set<String> done = ConcurrentHashMap.newKeySet();
        offramp.worker("orders").asyncHandler(batch -> {
            String value = batch.get(0).valueAsText();
            if (!done.add(value)) {
                return CompletableFuture.completedFuture(null);
            }
            return switch (value) {
                case "fails" -> CompletableFuture.failedFuture(new IllegalStateException("no"));
                case "wrapped" -> CompletableFuture.failedFuture(new CompletionException(SettleAs.reject("never")));
                case "throws" -> throw SettleAs.release();
                default -> null;
            };
        }).start();
        sidecar.eventually(() -> sidecar.acked().size() == 3);
        assertEquals(
                List.of(
                        new FakeSidecar.SettledRecord("fails", Outcome.OUTCOME_NACK, "IllegalStateException: no", null),
                        new FakeSidecar.SettledRecord("wrapped", Outcome.OUTCOME_REJECT, "never", null),
                        new FakeSidecar.SettledRecord("throws", Outcome.OUTCOME_RELEASE, "", null),
                        new FakeSidecar.SettledRecord(
                                "null",
                                Outcome.OUTCOME_NACK,
                                "NullPointerException: the handler returned null instead of a stage",
                                null)),
                sidecar.settled.stream().filter(record -> record.outcome() != Outcome.OUTCOME_ACK).toList());
    }

    @Test
    void noMoreStagesArePendingThanThereAreWorkers() throws Exception {
        sidecar.offer(List.of(1), List.of(2), List.of(3));
        List<CompletableFuture<Void>> started = new java.util.concurrent.CopyOnWriteArrayList<>();
        CountDownLatch two = new CountDownLatch(2);
        Worker worker = offramp.worker("orders").workers(2).asyncHandler(batch -> {
            CompletableFuture<Void> stage = new CompletableFuture<>();
            started.add(stage);
            two.countDown();
            return stage;
        }).start();
        two.await();
        sidecar.eventually(() -> sidecar.sessions.get(0).sent.size() == 3);
        assertEquals(2, started.size());
        worker.drain();
        started.forEach(stage -> stage.complete(null));
        worker.join();
        assertEquals(2, sidecar.acked().size());
    }

    @Test
    void drainingFinishesBatchesInHandAndReleasesTheRest() throws Exception {
        CountDownLatch holding = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        sidecar.offer(List.of(1), List.of(2));
        Worker worker = offramp.worker("orders").handler(batch -> {
            holding.countDown();
            go.await();
        }).start();
        holding.await();
        sidecar.eventually(() -> sidecar.sessions.get(0).sent.size() == 2);
        worker.drain();
        sidecar.eventually(() -> sidecar.settledWith(Outcome.OUTCOME_RELEASE).equals(List.of("2")));
        assertTrue(worker.running());
        go.countDown();
        worker.close();
        assertFalse(worker.running());
        assertEquals(List.of("1"), sidecar.acked());
        assertTrue(sidecar.sessions.get(0).halfClosed);
    }

    @Test
    void drainingWaitsForPendingStages() throws Exception {
        sidecar.offer(List.of(1));
        CompletableFuture<Void> stage = new CompletableFuture<>();
        CountDownLatch started = new CountDownLatch(1);
        Worker worker = offramp.worker("orders").workers(2).asyncHandler(batch -> {
            started.countDown();
            return stage;
        }).start();
        started.await();
        worker.drain();
        sidecar.eventually(() -> sidecar.sessions.get(0).draining);
        assertFalse(worker.join(Duration.ofMillis(100)));
        stage.complete(null);
        worker.join();
        assertEquals(List.of("1"), sidecar.acked());
        assertTrue(sidecar.sessions.get(0).halfClosed);
    }

    @Test
    void batchesThatArriveAfterTheDrainAreReleased() throws Exception {
        CountDownLatch holding = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        sidecar.offer(List.of(1));
        Worker worker = offramp.worker("orders").handler(batch -> {
            holding.countDown();
            go.await();
        }).start();
        holding.await();
        synchronized (sidecar) {
            sidecar.sentOnDrain.add(new FakeSidecar.PendingBatch(
                    List.of(io.offramp.v1.Record.newBuilder()
                            .setValue(com.google.protobuf.ByteString.copyFromUtf8("2"))
                            .build()),
                    1,
                    false));
        }
        worker.drain();
        sidecar.eventually(() -> sidecar.settledWith(Outcome.OUTCOME_RELEASE).equals(List.of("2")));
        go.countDown();
        worker.join();
        assertEquals(List.of("1"), sidecar.acked());
    }

    @Test
    void aHandlerMayDrainItsWorkerButNotCloseIt() throws Exception {
        sidecar.offer(List.of(1), List.of(2));
        CompletableFuture<Worker> self = new CompletableFuture<>();
        Worker worker = offramp.worker("orders").handler(batch -> {
            self.join().drain();
            assertThrows(IllegalStateException.class, () -> self.join().close());
        }).start();
        self.complete(worker);
        worker.join();
        assertEquals(List.of("1"), sidecar.acked());
    }

    @Test
    void aHandlerThatDoesNotFinishInTimeIsInterruptedAndItsRecordsArePossiblyProcessed() throws Exception {
        CountDownLatch holding = new CountDownLatch(1);
        CountDownLatch interrupted = new CountDownLatch(1);
        sidecar.offer(List.of(1));
        Worker worker = offramp.worker("orders").drainTimeout(Duration.ofMillis(10)).handler(batch -> {
            holding.countDown();
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException error) {
                interrupted.countDown();
            }
        }).start();
        holding.await();
        worker.close();
        interrupted.await();
        sidecar.eventually(() -> sidecar.sessions.get(0).ended);
        assertFalse(sidecar.sessions.get(0).halfClosed);
        assertTrue(sidecar.ready.getFirst().possiblyProcessed());
        assertEquals(List.of(), sidecar.settled);
    }

    @Test
    void closingTheConnectionClosesAllWorkersAndThenPublishers() throws Exception {
        CountDownLatch holding = new CountDownLatch(2);
        CountDownLatch go = new CountDownLatch(1);
        sidecar.offer(List.of(1), List.of(2));
        Publisher publisher = offramp.publisher().broker("local").open();
        for (int count = 0; count < 2; count++) {
            offramp.worker("orders").prefetch(0).handler(batch -> {
                holding.countDown();
                go.await();
                publisher.publish("replies", Message.of("1"));
            }).start();
        }
        holding.await();
        CompletableFuture<Void> closing = CompletableFuture.runAsync(offramp::close);
        sidecar.eventually(() -> sidecar.sessions.stream().allMatch(session -> session.draining));
        go.countDown();
        closing.join();
        assertEquals(2, sidecar.acked().size());
        assertEquals(2, sidecar.published.size());
        assertThrows(OfframpException.Closed.class, () -> offramp.worker("orders").handler(batch -> {}).start());
    }

    @Test
    void aRefusedWorkerEndsWithTheSidecarsMessage() throws Exception {
        sidecar.refuse = Status.NOT_FOUND.withDescription("no \"ordrs\"; there are: orders");
        Worker worker = offramp.worker("ordrs").workers(3).handler(batch -> {}).start();
        OfframpException.NotFound error = assertThrows(OfframpException.NotFound.class, worker::join);
        assertTrue(error.getMessage().contains("there are: orders"), error.getMessage());
        assertTrue(error.getMessage().contains(sidecar.address), error.getMessage());
        assertFalse(worker.running());
        worker.close();
    }

    @Test
    void batchesThatNoWorkerTakesAreReleasedAndTheCreditShrinksUntilWorkersAreFastAgain() throws Exception {
        CountDownLatch holding = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        sidecar.offer(List.of(1), List.of(2));
        offramp.worker("orders").patience(Duration.ofMillis(50)).handler(batch -> {
            holding.countDown();
            go.await();
        }).start();
        holding.await();
        sidecar.eventually(() -> sidecar.settledWith(Outcome.OUTCOME_RELEASE).contains("2"));
        sidecar.eventually(() -> sidecar.sessions.get(0).credit == 1);
        go.countDown();
        sidecar.eventually(() -> sidecar.acked().size() == 2);
        sidecar.offer(List.of(3), List.of(4), List.of(5));
        sidecar.eventually(() -> sidecar.acked().size() == 5 && sidecar.sessions.get(0).credit == 2);
    }

    @Test
    void invalidOptionsAreNamed() {
        Worker.Builder worker = offramp.worker("orders");
        assertThrows(IllegalArgumentException.class, () -> offramp.worker(""));
        assertThrows(IllegalArgumentException.class, worker::start);
        assertThrows(IllegalArgumentException.class, () -> worker.workers(0));
        assertThrows(IllegalArgumentException.class, () -> worker.prefetch(-1));
        assertThrows(IllegalArgumentException.class, () -> worker.maxMessageBytes(4_095));
        assertThrows(IllegalArgumentException.class, () -> worker.lease(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> worker.patience(Duration.ZERO));
        worker.handler(batch -> {}).asyncHandler(batch -> null);
        assertThrows(IllegalArgumentException.class, worker::start);
    }

    @Test
    void theHelloHasTheOptions() throws Exception {
        offramp.worker("orders")
                .workers(3)
                .prefetch(2)
                .name("me")
                .lease(Duration.ofSeconds(7))
                .maxMessageBytes(1 << 20)
                .creditBytes(5_000)
                .handler(batch -> {})
                .start();
        io.offramp.v1.Hello hello = sidecar.session(0).hello;
        assertEquals("orders", hello.getSubscription());
        assertEquals(5, hello.getCredit().getBatches());
        assertEquals(5_000, hello.getCredit().getBytes());
        assertEquals(7_000, hello.getLeaseMs());
        assertEquals(1 << 20, hello.getMaxMessageBytes());
        assertEquals("me", hello.getClient().getName());
        assertEquals(ProcessHandle.current().pid(), hello.getClient().getPid());
    }
}

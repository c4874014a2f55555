package io.offramp.scenarios;

import static io.offramp.scenarios.Talk.SUBSCRIPTION;
import static io.offramp.scenarios.Talk.equal;
import static io.offramp.scenarios.Talk.expect;
import static io.offramp.scenarios.Talk.say;

import io.offramp.Batch;
import io.offramp.BatchRecord;
import io.offramp.Consumer;
import io.offramp.Handler;
import io.offramp.Offramp;
import io.offramp.SettleResult;
import io.offramp.SettleStatus;
import io.offramp.Worker;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.UnaryOperator;

/** What scenarios have in common. */
final class Play {
    static final Duration SOON = Duration.ofSeconds(60);

    final Offramp offramp;
    /** By handlers that return stages, instead of by those that block. */
    private final boolean async;

    private final ExecutorService elsewhere = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "elsewhere");
        thread.setDaemon(true);
        return thread;
    });

    Play(Offramp offramp, boolean async) {
        this.offramp = offramp;
        this.async = async;
    }

    // By iteration

    Consumer consume() {
        return offramp.consumer(SUBSCRIPTION).open();
    }

    static Batch take(Consumer consumer) throws InterruptedException {
        Batch batch = consumer.poll(SOON);
        expect(batch != null, "no batch came");
        return batch;
    }

    static <T> T soon(Future<T> answer) throws InterruptedException {
        try {
            return answer.get(SOON.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            throw new Talk.Failed("no answer: " + error);
        }
    }

    static void settled(Future<SettleResult> answer) throws InterruptedException {
        equal(soon(answer).status(), SettleStatus.SETTLED);
    }

    static BatchRecord one(Batch batch) {
        equal(batch.size(), 1);
        return batch.get(0);
    }

    static void isFirst(BatchRecord record) {
        equal(List.of(record.attempt(), record.possiblyProcessed()), List.of(1, false));
    }

    static void isAgain(BatchRecord record, boolean possiblyProcessed) {
        equal(List.of(record.attempt(), record.possiblyProcessed()), List.of(2, possiblyProcessed));
    }

    // By handler

    Worker.Builder worker(Handler handler) {
        Worker.Builder worker = offramp.worker(SUBSCRIPTION);
        return async
                ? worker.asyncHandler(batch -> CompletableFuture.runAsync(
                        () -> {
                            try {
                                handler.handle(batch);
                            } catch (RuntimeException error) {
                                throw error;
                            } catch (Exception error) {
                                throw new IllegalStateException(error);
                            }
                        },
                        elsewhere))
                : worker.handler(handler);
    }

    /** Works until SIGTERM, leaves, and says `pass` then. */
    void untilTold(Worker.Builder worker) throws InterruptedException {
        offramp.closeOnShutdown(() -> {
            say("pass");
            // Otherwise the exit code would be that of the signal.
            Runtime.getRuntime().halt(0);
        });
        worker.start().join();
        // The verdict is said on the way out.
        Thread.sleep(SOON.toMillis());
    }

    /** A handler for one delivery of a record. */
    interface Delivery {
        void handle(BatchRecord record) throws Exception;
    }

    void handled(Delivery... deliveries) throws InterruptedException {
        handledBy(worker -> worker, deliveries);
    }

    /** One record, delivered once for each of these; the worker leaves after the last one. */
    void handledBy(UnaryOperator<Worker.Builder> options, Delivery... deliveries) throws InterruptedException {
        Deque<Delivery> left = new ArrayDeque<>(List.of(deliveries));
        ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
        CompletableFuture<Worker> self = new CompletableFuture<>();
        Worker worker = options.apply(worker(batch -> {
                    Delivery delivery = left.poll();
                    if (delivery == null) {
                        failures.add("it was delivered once too often");
                        return;
                    }
                    if (left.isEmpty()) {
                        self.join().drain();
                    }
                    try {
                        delivery.handle(one(batch));
                    } catch (Talk.Failed failure) {
                        failures.add(failure.getMessage());
                        self.join().drain();
                    }
                }))
                .start();
        self.complete(worker);
        worker.join();
        expect(failures.isEmpty(), String.join("; ", failures));
        equal(left.size(), 0);
    }
}

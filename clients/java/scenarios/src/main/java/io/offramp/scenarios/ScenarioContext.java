package io.offramp.scenarios;

import static io.offramp.scenarios.Harness.SUBSCRIPTION;
import static io.offramp.scenarios.Harness.equal;
import static io.offramp.scenarios.Harness.expect;
import static io.offramp.scenarios.Harness.say;

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
import java.util.function.BooleanSupplier;
import java.util.function.UnaryOperator;

/** What scenarios share: the client, and the checks of batches and deliveries. */
final class ScenarioContext {
    static final Duration TIMEOUT = Duration.ofSeconds(60);

    final Offramp offramp;
    /** Use handlers that return stages instead of blocking ones. */
    private final boolean async;

    private final ExecutorService asyncPool = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "asyncPool");
        thread.setDaemon(true);
        return thread;
    });

    ScenarioContext(Offramp offramp, boolean async) {
        this.offramp = offramp;
        this.async = async;
    }

    // By iteration

    Consumer openConsumer() {
        return offramp.consumer(SUBSCRIPTION).open();
    }

    static Batch take(Consumer consumer) throws InterruptedException {
        Batch batch = consumer.poll(TIMEOUT);
        expect(batch != null, "no batch arrived");
        return batch;
    }

    static <T> T await(Future<T> answer) throws InterruptedException {
        try {
            return answer.get(TIMEOUT.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            throw new Harness.Failed("no answer: " + error);
        }
    }

    static void expectSettled(Future<SettleResult> answer) throws InterruptedException {
        equal(await(answer).status(), SettleStatus.SETTLED);
    }

    static BatchRecord onlyRecord(Batch batch) {
        equal(batch.size(), 1);
        return batch.get(0);
    }

    static void isFirst(BatchRecord record) {
        equal(List.of(record.attempt(), record.possiblyProcessed()), List.of(1, false));
    }

    static void isRedelivered(BatchRecord record, boolean possiblyProcessed) {
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
                        asyncPool))
                : worker.handler(handler);
    }

    /** Once all is closed on SIGTERM, prints `pass` if this holds. */
    void passOnShutdown(BooleanSupplier holds) {
        offramp.closeOnShutdown(() -> {
            if (holds.getAsBoolean()) {
                say("pass");
                // Otherwise the exit code would be that of the signal.
                Runtime.getRuntime().halt(0);
            }
        });
    }

    /** Works until SIGTERM, closes, and then prints `pass`. */
    void runUntilSigterm(Worker.Builder worker) throws InterruptedException {
        passOnShutdown(() -> true);
        worker.start().join();
        // The shutdown hook prints the result.
        Thread.sleep(TIMEOUT.toMillis());
    }

    /** A handler for one delivery of a record. */
    interface Delivery {
        void handle(BatchRecord record) throws Exception;
    }

    void handleDeliveries(Delivery... deliveries) throws InterruptedException {
        handleDeliveriesWith(worker -> worker, deliveries);
    }

    /** Handles one record, which is delivered once for each of these; the worker stops after the last one. */
    void handleDeliveriesWith(UnaryOperator<Worker.Builder> options, Delivery... deliveries)
            throws InterruptedException {
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
                        delivery.handle(onlyRecord(batch));
                    } catch (Harness.Failed failure) {
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

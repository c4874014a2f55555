package io.offramp;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Calls a handler with batches of a subscription, several at a time, over one connection.
 *
 * <p>Created by {@link Offramp#worker}. Waits for the sidecar for as long as it takes, also when that restarts. Works
 * until {@link #drain} or {@link #close}, or until the sidecar refuses it: {@link #join} then throws the refusal. Its
 * threads are daemons: {@code join} keeps a program running.
 */
public final class Worker implements AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final String subscription;
    private final @Nullable Duration drainTimeout;
    private final Connection connection;
    private final HandlerRunner runner;
    private final Runnable onEnd;
    private final AtomicBoolean leaving = new AtomicBoolean();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    private Worker(Builder builder) {
        Settings settings = builder.settings(builder.credit());
        Inbox inbox = new Inbox();
        this.subscription = settings.subscription();
        this.drainTimeout = builder.drainTimeout;
        this.connection = new Connection(settings, builder.offramp.transport(), inbox);
        String name = "offramp-" + subscription + "-worker";
        int workers = builder.workers;
        this.runner = builder.handler != null
                ? new BlockingHandlerRunner(inbox, this::leave, builder.handler, workers, builder.executor, name)
                : new AsyncHandlerRunner(inbox, this::leave, builder.asyncHandler, workers, name);
        this.onEnd = builder.offramp.register(this);
    }

    private void start() {
        connection.start();
        try {
            runner.start();
        } catch (RuntimeException error) {
            leave();
            throw error;
        }
    }

    /** Whether there is a session with the sidecar now. */
    public boolean connected() {
        return connection.connected();
    }

    /** Whether it has not ended yet, connected or not. */
    public boolean running() {
        return !ended.isDone();
    }

    /**
     * Takes no further batch, releases those that wait, lets handlers finish and settles their batches, then ends.
     * Returns at once; handlers may call it.
     */
    public void drain() {
        connection.drain();
    }

    /**
     * Waits until the worker has ended: after {@link #drain} or {@link #close}, or because the sidecar refused it.
     *
     * @throws OfframpException.Refused when the sidecar refuses
     */
    public void join() throws InterruptedException {
        try {
            ended.get();
        } catch (ExecutionException error) {
            throw failure(error);
        }
    }

    /**
     * Like {@link #join()}, for this long at most.
     *
     * @return whether it has ended
     */
    public boolean join(Duration atMost) throws InterruptedException {
        try {
            ended.get(atMost.toNanos(), TimeUnit.NANOSECONDS);
            return true;
        } catch (TimeoutException error) {
            return false;
        } catch (ExecutionException error) {
            throw failure(error);
        }
    }

    /** Completes when the worker has ended; fails with an {@link OfframpException} if the sidecar refused. */
    public CompletionStage<Void> ended() {
        return ended.minimalCompletionStage();
    }

    /**
     * Drains, and waits until handlers have finished and the sidecar has answered. Handlers that do not finish within
     * {@code drainTimeout} are interrupted and abandoned; their records are delivered again as possibly processed.
     * Further calls are harmless.
     */
    @Override
    public void close() {
        drain();
        if (runner.isHandlerThread()) {
            throw new IllegalStateException("a handler cannot close its own worker, which waits for it: call drain()");
        }
        try {
            if (drainTimeout == null) {
                ended.get();
            } else {
                ended.get(drainTimeout.toNanos(), TimeUnit.NANOSECONDS);
            }
        } catch (TimeoutException error) {
            log.warn("{}: handlers did not finish within {}; closing without them", subscription, drainTimeout);
            leaveWithoutHandlers();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            leaveWithoutHandlers();
        } catch (ExecutionException error) {
            // It was logged when it happened, and `join` throws it.
        }
    }

    private void leaveWithoutHandlers() {
        runner.abandon();
        leave();
        // If the last handler ended just now, its thread runs `leave`, which does not take long.
        ended.handle((nothing, error) -> nothing).join();
    }

    /** Called when no handler runs any more, or is waited for. Only the first call counts. */
    private void leave() {
        if (!leaving.compareAndSet(false, true)) {
            return;
        }
        connection.close(null);
        onEnd.run();
        connection.closed().whenComplete((nothing, error) -> {
            if (error == null) {
                ended.complete(null);
            } else {
                ended.completeExceptionally(error);
            }
        });
        // In case the connection could not be closed in time.
        ended.complete(null);
    }

    private static RuntimeException failure(ExecutionException error) {
        return error.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(error.getCause());
    }

    /** The options of a worker. */
    public static final class Builder extends SessionOptions<Builder> {
        private final Offramp offramp;
        private @Nullable Handler handler;
        private @Nullable AsyncHandler asyncHandler;
        private int workers = 1;
        private @Nullable Integer prefetch;
        private @Nullable Executor executor;
        private @Nullable Duration drainTimeout;

        Builder(Offramp offramp, String subscription) {
            super(subscription);
            this.offramp = offramp;
        }

        @Override
        Builder self() {
            return this;
        }

        /** The function that processes batches, blocking. */
        public Builder handler(Handler handler) {
            this.handler = Objects.requireNonNull(handler, "handler");
            return this;
        }

        /** The function that processes batches, blocking, and may return a stage, for which its worker then waits. */
        public Builder handler(ResultHandler handler) {
            return handler((Handler) handler);
        }

        /** The function that starts to process batches and returns stages. Instead of a {@code handler}. */
        public Builder asyncHandler(AsyncHandler handler) {
            this.asyncHandler = Objects.requireNonNull(handler, "asyncHandler");
            return this;
        }

        /** How many batches are processed at a time. Default: 1. */
        public Builder workers(int workers) {
            this.workers = atLeast("workers", workers, 1);
            return this;
        }

        /**
         * Further batches that wait in this process, so that no worker waits for a round trip. Default: one for each
         * worker. No other process can take them; a batch that has waited for {@code patience} is released. With 0
         * nothing waits.
         */
        public Builder prefetch(int batches) {
            this.prefetch = atLeast("prefetch", batches, 0);
            return this;
        }

        /**
         * Where a blocking handler runs: each worker occupies one of its threads until the end. Default: new threads.
         * The app shuts it down; interrupting one of its threads ends that worker.
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /** How long {@link Worker#close} waits for handlers to finish. Default: as long as they take. */
        public Builder drainTimeout(Duration timeout) {
            this.drainTimeout = Objects.requireNonNull(timeout, "drainTimeout");
            return this;
        }

        /** Starts to work. Does not wait for the sidecar. */
        public Worker start() {
            if ((handler == null) == (asyncHandler == null)) {
                throw new IllegalArgumentException("either a handler or an asyncHandler must be given");
            }
            if (asyncHandler != null && executor != null) {
                throw new IllegalArgumentException("executor: an asyncHandler does not use one");
            }
            Worker worker = new Worker(this);
            worker.start();
            return worker;
        }

        private int credit() {
            return workers + (prefetch == null ? workers : prefetch);
        }
    }
}

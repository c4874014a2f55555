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
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives batches of a subscription to a handler, several at a time, over one connection.
 *
 * <p>Made by {@link Offramp#worker}. It waits for the sidecar for as long as it takes, also when that restarts. It works
 * until it is told to stop, or until the sidecar refuses it: {@link #join} then throws what it said. Its threads are
 * daemons: {@code join} keeps a program running.
 */
public final class Worker implements AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final String subscription;
    private final Duration drainTimeout;
    private final Link link;
    private final Crew crew;
    private final Runnable onEnd;
    private final AtomicBoolean left = new AtomicBoolean();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    private Worker(Builder builder) {
        Settings settings = builder.settings(builder.credit());
        Inbox inbox = new Inbox();
        this.subscription = settings.subscription();
        this.drainTimeout = builder.drainTimeout;
        this.link = new Link(settings, builder.offramp.transport(), inbox);
        String name = "offramp-" + subscription + "-worker";
        this.crew = builder.handler != null
                ? new BlockingCrew(inbox, this::leave, builder.handler, builder.workers, builder.executor, name)
                : new AsyncCrew(inbox, this::leave, builder.asyncHandler, builder.workers, name);
        this.onEnd = builder.offramp.opened(this);
    }

    private void start() {
        link.start();
        try {
            crew.start();
        } catch (RuntimeException error) {
            leave();
            throw error;
        }
    }

    /** There is a session with the sidecar now. */
    public boolean connected() {
        return link.connected();
    }

    /** It was started and has not ended yet, whether it is connected or waits for the sidecar. */
    public boolean running() {
        return !ended.isDone();
    }

    /**
     * Take no further batch, give back those that wait, let handlers finish what they have in hand, settle it, and tell
     * the sidecar. Returns at once; handlers may call it.
     */
    public void drain() {
        link.drain();
    }

    /**
     * Waits until the worker has ended: after {@link #drain} or {@link #close}, or because the sidecar refused it.
     *
     * @throws OfframpException.Refused when the sidecar said no
     */
    public void join() throws InterruptedException {
        try {
            ended.get();
        } catch (ExecutionException error) {
            throw failure(error);
        }
    }

    /**
     * As {@link #join()}, for this long at the most.
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

    /** Completes when the worker has ended; fails with an {@link OfframpException} if the sidecar said no. */
    public CompletionStage<Void> ended() {
        return ended.minimalCompletionStage();
    }

    /**
     * Drains, and waits until handlers have finished and the sidecar has answered. Handlers that do not finish within
     * the {@code drainTimeout} are interrupted and left behind; their records are delivered again as possibly processed.
     * Harmless when done again.
     */
    @Override
    public void close() {
        drain();
        if (crew.isWorkingHere()) {
            throw new IllegalStateException("a handler cannot close its own worker, which waits for it: call drain()");
        }
        try {
            if (drainTimeout == null) {
                ended.get();
            } else {
                ended.get(drainTimeout.toNanos(), TimeUnit.NANOSECONDS);
            }
        } catch (TimeoutException error) {
            log.warn("{}: handlers did not finish within {}; leaving without them", subscription, drainTimeout);
            leaveWithout();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            leaveWithout();
        } catch (ExecutionException error) {
            // It was logged when it happened, and `join` throws it.
        }
    }

    private void leaveWithout() {
        crew.giveUp();
        leave();
        // If a handler ended at the last moment, it is its thread that leaves, which does not take long.
        ended.handle((nothing, error) -> nothing).join();
    }

    /** Called when no handler runs any more, or is waited for. The first call counts. */
    private void leave() {
        if (!left.compareAndSet(false, true)) {
            return;
        }
        link.leave();
        onEnd.run();
        link.over().whenComplete((nothing, error) -> {
            if (error == null) {
                ended.complete(null);
            } else {
                ended.completeExceptionally(error);
            }
        });
        // It may be that the link could not be brought to its end.
        ended.complete(null);
    }

    private static RuntimeException failure(ExecutionException error) {
        return error.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(error.getCause());
    }

    /** What a worker can be told before it starts. */
    public static final class Builder extends SessionOptions<Builder> {
        private final Offramp offramp;
        private Handler handler;
        private AsyncHandler asyncHandler;
        private int workers = 1;
        private Integer prefetch;
        private Executor executor;
        private Duration drainTimeout;

        Builder(Offramp offramp, String subscription) {
            super(subscription);
            this.offramp = offramp;
        }

        @Override
        Builder self() {
            return this;
        }

        /** What works on batches, and blocks while it does. */
        public Builder handler(Handler handler) {
            this.handler = Objects.requireNonNull(handler, "handler");
            return this;
        }

        /** What starts the work on batches, and says later when it is done. Instead of a {@code handler}. */
        public Builder asyncHandler(AsyncHandler handler) {
            this.asyncHandler = Objects.requireNonNull(handler, "asyncHandler");
            return this;
        }

        /** How many batches are worked on at a time. Default: 1. */
        public Builder workers(int workers) {
            this.workers = atLeast("workers", workers, 1);
            return this;
        }

        /**
         * Further batches that wait in this process, so that no worker idles for a round trip. Default: one for each
         * worker. What waits here cannot be taken by another process; when it has waited for {@code patience} it is
         * given back. With 0 nothing ever waits.
         */
        public Builder prefetch(int batches) {
            this.prefetch = atLeast("prefetch", batches, 0);
            return this;
        }

        /**
         * Where a blocking handler runs: each worker takes one of its threads until the end. Default: threads of its
         * own. It stays yours to shut down; interrupting one of its threads ends that worker.
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "executor");
            return this;
        }

        /** How long {@link Worker#close} waits for handlers. Default: as long as they take. */
        public Builder drainTimeout(Duration timeout) {
            this.drainTimeout = Objects.requireNonNull(timeout, "drainTimeout");
            return this;
        }

        /** Start to work. Does not wait for the sidecar. */
        public Worker start() {
            if ((handler == null) == (asyncHandler == null)) {
                throw new IllegalArgumentException("either a handler or an asyncHandler must be given");
            }
            if (asyncHandler != null && executor != null) {
                throw new IllegalArgumentException("executor: an asyncHandler has no use for one");
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

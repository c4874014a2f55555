package io.offramp;

import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes batches one after the other, on any number of threads, for apps that run their own loop:
 *
 * <pre>{@code
 * for (Batch batch : consumer) {
 *     try {
 *         work(batch);
 *         batch.ack();
 *     } catch (Exception error) {
 *         batch.nack(error);
 *     }
 * }
 * }</pre>
 *
 * <p>Created by {@link Offramp#consumer}. The thread that takes a batch settles it. Waits for the sidecar for as long
 * as it takes, also when that restarts.
 */
public final class Consumer implements Iterable<Batch>, AutoCloseable {
    private static final Logger log = LoggerFactory.getLogger("io.offramp");

    private final Inbox inbox = new Inbox();
    private final Connection connection;
    private final String subscription;
    private final Duration drainTimeout;
    private final Runnable onEnd;

    private Consumer(Builder builder) {
        Settings settings = builder.settings(builder.credit);
        this.connection = new Connection(settings, builder.offramp.transport(), inbox);
        this.subscription = settings.subscription();
        this.drainTimeout = builder.drainTimeout;
        this.onEnd = builder.offramp.register(this);
        connection.start();
    }

    /** Whether there is a session with the sidecar now. */
    public boolean connected() {
        return connection.connected();
    }

    /**
     * The next batch.
     *
     * @throws OfframpException.Drained when the consumer drains or is closed: no further batch comes
     * @throws OfframpException.Refused when the sidecar refuses
     */
    public Batch take() throws InterruptedException {
        Batch batch;
        do {
            batch = poll(Duration.ofNanos(Long.MAX_VALUE));
        } while (batch == null);
        return batch;
    }

    /**
     * The next batch; null if none arrived within this time. With zero it returns what was received since the last
     * call, unless that has waited for {@code patience}.
     *
     * @throws OfframpException.Drained when the consumer drains or is closed: no further batch comes
     * @throws OfframpException.Refused when the sidecar refuses
     */
    public @Nullable Batch poll(Duration atMost) throws InterruptedException {
        Batch batch = inbox.take(atMost.toNanos(), 1);
        if (batch == null) {
            OfframpException failure = connection.failure();
            if (failure != null) {
                throw failure;
            }
            if (inbox.closed()) {
                throw new OfframpException.Drained(
                        "the consumer of " + subscription + " drains: no further batch comes");
            }
        }
        return batch;
    }

    /** Ends when the consumer drains, is closed, or the thread is interrupted. */
    @Override
    public Iterator<Batch> iterator() {
        return new Batches();
    }

    /** Ends the iteration on all threads. Batches in hand can still be settled. Returns at once. */
    public void drain() {
        connection.drain();
    }

    /**
     * Ends the session. Batches in hand are released: they are delivered again, without counting as an attempt. So nack
     * a batch whose work has failed, or a poisoned record comes back forever. Waits for the sidecar's last answers,
     * for a few seconds at most.
     */
    @Override
    public void close() {
        connection.close(Outcome.RELEASE);
        onEnd.run();
    }

    /**
     * Drains, waits until the batches in hand are settled, for {@code drainTimeout} at most, and closes. What other
     * threads still work on then is left to the sidecar, which treats it as possibly processed.
     */
    void closeOnceSettled() {
        drain();
        awaitSettled();
        connection.close(null);
        onEnd.run();
    }

    private void awaitSettled() {
        try {
            connection.settled().get(drainTimeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException error) {
            log.warn("{}: batches in hand were not settled within {}; closing anyway", subscription, drainTimeout);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    private final class Batches implements Iterator<Batch> {
        private @Nullable Batch next;

        @Override
        public boolean hasNext() {
            if (next == null) {
                try {
                    next = take();
                } catch (OfframpException.Drained error) {
                    return false;
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return next != null;
        }

        @Override
        public Batch next() {
            hasNext();
            Batch batch = next;
            if (batch == null) {
                throw new NoSuchElementException();
            }
            next = null;
            return batch;
        }
    }

    /** The options of a consumer. */
    public static final class Builder extends SessionOptions<Builder> {
        private final Offramp offramp;
        private int credit = 2;
        private Duration drainTimeout = Duration.ofSeconds(20);

        Builder(Offramp offramp, String subscription) {
            super(subscription);
            this.offramp = offramp;
        }

        @Override
        Builder self() {
            return this;
        }

        /**
         * Batches that may be unsettled at a time, waiting ones included. Default: 2, so that the next batch is there
         * when the one in hand is done. Give two for each thread that takes batches.
         */
        public Builder credit(int batches) {
            this.credit = atLeast("credit", batches, 1);
            return this;
        }

        /**
         * How long {@link Offramp#closeOnShutdown()} waits for batches in hand to be settled. Default: 20 seconds,
         * since a batch that was dropped is never settled.
         */
        public Builder drainTimeout(Duration timeout) {
            this.drainTimeout = Objects.requireNonNull(timeout, "drainTimeout");
            return this;
        }

        /** Starts to ask for batches. Does not wait for the sidecar. */
        public Consumer open() {
            return new Consumer(this);
        }
    }
}

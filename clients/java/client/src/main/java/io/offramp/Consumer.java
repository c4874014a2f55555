package io.offramp;

import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes batches one after the other, on any number of threads, for apps that run their own loop:
 *
 * <pre>{@code
 * for (Batch batch : consumer) {
 *     work(batch);
 *     batch.ack();
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
     * The next batch; null when the consumer drains or is closed.
     *
     * @throws OfframpException.Refused when the sidecar refuses
     */
    public Batch take() throws InterruptedException {
        return poll(Duration.ofNanos(Long.MAX_VALUE));
    }

    /**
     * The next batch; null if none arrived within this time, or if the consumer drains or is closed. With zero it
     * returns what was received since the last call, unless that has waited for {@code patience}.
     *
     * @throws OfframpException.Refused when the sidecar refuses
     */
    public Batch poll(Duration atMost) throws InterruptedException {
        Batch batch = inbox.take(atMost.toNanos(), 1);
        if (batch == null && connection.failure() != null) {
            throw connection.failure();
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
     * Ends the session. Settle batches before: those in hand are delivered again as possibly processed. Waits for the
     * sidecar's last answers, for a few seconds at most.
     */
    @Override
    public void close() {
        connection.close();
        onEnd.run();
    }

    /** After {@link #drain}: waits until the batches in hand are settled, for {@code drainTimeout} at most. */
    void awaitSettled() {
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
        private Batch next;

        @Override
        public boolean hasNext() {
            if (next == null) {
                try {
                    next = take();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
            return next != null;
        }

        @Override
        public Batch next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Batch batch = next;
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
